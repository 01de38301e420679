#include "discreet/ledger/receipt.h"

#include <gtest/gtest.h>

#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/ledger/ledger_testing.h"

namespace discreet::ledger {
namespace {

using testing::key;

// The leaves of the RFC 6962 reference tests.
const Bytes kLeaves[] = {from_hex(""),
                         from_hex("00"),
                         from_hex("10"),
                         from_hex("2021"),
                         from_hex("3031"),
                         from_hex("40414243"),
                         from_hex("5051525354555657"),
                         from_hex("606162636465666768696a6b6c6d6e6f")};

constexpr const char* kOrigin = "test.example/log";

struct Log {
  Tree tree;
  Log() {
    for (const Bytes& leaf : kLeaves) tree.append(leaf_hash(leaf));
  }
  RangeHash range() const {
    return [this](auto begin, auto end) { return tree.range(begin, end); };
  }
  Bytes receipt(std::uint64_t index, std::uint64_t size) const {
    return inclusion_receipt(key(1), kOrigin, size, index, inclusion_proof(index, size, range()),
                             tree.range(0, size));
  }
};

TEST(Receipt, SignsTheRootUnderTheHeadersOfRfc9942) {
  const Log log;
  const Bytes bytes = log.receipt(5, 8);
  const admission::Sign1 message = admission::decode_sign1(bytes);
  EXPECT_EQ(message.protected_header.at(395), cbor::Value(1));
  EXPECT_EQ(message.protected_header.at(1), cbor::Value(-8));
  EXPECT_FALSE(message.payload);
  // TBS: "Signature1", protected, no external data, the 32 bytes of the root.
  const Bytes input = admission::signature_input(message, log.tree.range(0, 8));
  EXPECT_TRUE(to_hex(input).starts_with("846a5369676e617475726531"));
  EXPECT_TRUE(
      to_hex(input).ends_with("5820"
                              "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"));
}

TEST(Receipt, HoldsForItsLeafAndForNoOther) {
  const Log log;
  for (std::uint64_t size = 2; size <= 8; ++size)
    for (std::uint64_t i = 0; i < size; ++i) {
      const Bytes receipt = log.receipt(i, size);
      Place place;
      EXPECT_TRUE(verify_inclusion_receipt(receipt, kLeaves[i], key(1).public_key(), &place));
      EXPECT_EQ(place.size, size);
      EXPECT_EQ(place.index, i);
      EXPECT_FALSE(verify_inclusion_receipt(receipt, kLeaves[(i + 1) % 8], key(1).public_key()));
      EXPECT_FALSE(verify_inclusion_receipt(receipt, kLeaves[i], key(2).public_key()));
    }
}

TEST(Receipt, NoFlippedBitIsMissed) {
  const Log log;
  const Bytes receipt = log.receipt(5, 7);
  for (std::size_t bit = 0; bit < 8 * receipt.size(); ++bit) {
    Bytes flipped = receipt;
    flipped[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    EXPECT_FALSE(verify_inclusion_receipt(flipped, kLeaves[5], key(1).public_key())) << bit;
  }
  EXPECT_FALSE(verify_inclusion_receipt({}, kLeaves[5], key(1).public_key()));
}

TEST(Receipt, OfConsistencyHoldsForItsTwoTrees) {
  const Log log;
  const auto at = [&](std::uint64_t size, const char* origin = kOrigin) {
    return Checkpoint{origin, size, log.tree.range(0, size)};
  };
  for (std::uint64_t m = 1; m <= 8; ++m)
    for (std::uint64_t n = m; n <= 8; ++n) {
      const Bytes receipt = consistency_receipt(key(1), kOrigin, m, n,
                                                consistency_proof(m, n, log.range()), at(n).root);
      EXPECT_TRUE(verify_consistency_receipt(receipt, at(m), at(n), key(1).public_key()));
      EXPECT_FALSE(verify_consistency_receipt(receipt, at(m), at(n), key(2).public_key()));
      if (m < n) {
        EXPECT_FALSE(verify_consistency_receipt(receipt, at(n), at(n), key(1).public_key()));
      }
      EXPECT_FALSE(verify_consistency_receipt(receipt, at(m, "another"), at(n, "another"),
                                              key(1).public_key()));
      // Roots alone do not make the checkpoints those of the receipt.
      Checkpoint longer = at(n), shorter = at(m);
      ++longer.size;
      --shorter.size;
      EXPECT_FALSE(verify_consistency_receipt(receipt, at(m), longer, key(1).public_key()));
      EXPECT_FALSE(verify_consistency_receipt(receipt, shorter, at(n), key(1).public_key()));
      EXPECT_FALSE(verify_inclusion_receipt(receipt, kLeaves[0], key(1).public_key()));
    }
}

// The path of the last leaf of five, one hash, is also that of the second of two: the root alone
// does not say of how many leaves it is.
TEST(Receipt, OfOneTreeIsNotReadAsOfAnother) {
  const Log log;
  admission::Sign1 message = admission::decode_sign1(log.receipt(4, 5));
  const auto with_proof = [&](std::uint64_t size, std::uint64_t index) {
    const Path path = inclusion_proof(4, 5, log.range());
    const Bytes proof =
        cbor::encode(cbor::array({size, index, cbor::array({path.begin(), path.end()})}));
    message.unprotected =
        cbor::map({{396, cbor::map({{-1, cbor::array({cbor::Value(ByteView(proof))})}})}});
    return admission::encode(message);
  };
  EXPECT_TRUE(verify_inclusion_receipt(with_proof(5, 4), kLeaves[4], key(1).public_key()));
  EXPECT_FALSE(verify_inclusion_receipt(with_proof(2, 1), kLeaves[4], key(1).public_key()));
  EXPECT_FALSE(verify_inclusion_receipt(with_proof(9, 8), kLeaves[4], key(1).public_key()));
}

TEST(Receipt, NamesItsLedgerAndTheRootItIsUnder) {
  const Log log;
  Place place;
  ASSERT_TRUE(verify_inclusion_receipt(log.receipt(3, 7), kLeaves[3], key(1).public_key(), &place));
  EXPECT_EQ(place.origin, kOrigin);
  EXPECT_EQ(place.root, log.tree.range(0, 7));
  EXPECT_THROW(inclusion_receipt(key(1), "no name", 7, 3, {}, Digest{}), Error);
}

// As versions before the claims wrote it.
TEST(Receipt, WithoutClaimsIsTakenAndNamesNoLedger) {
  const Log log;
  const auto id = key(1).public_key().id();
  const Path path = inclusion_proof(3, 7, log.range());
  const Bytes proof = cbor::encode(cbor::array({7, 3, cbor::array({path.begin(), path.end()})}));
  admission::Sign1 message = admission::sign_detached(
      key(1), cbor::map({{admission::cose_label::kKeyId, ByteView(id)}, {395, 1}}),
      log.tree.range(0, 7));
  message.unprotected =
      cbor::map({{396, cbor::map({{-1, cbor::array({cbor::Value(ByteView(proof))})}})}});
  Place place;
  ASSERT_TRUE(verify_inclusion_receipt(admission::encode(message), kLeaves[3], key(1).public_key(),
                                       &place));
  EXPECT_EQ(place.origin, "");
}

}  // namespace
}  // namespace discreet::ledger
