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

struct Log {
  Tree tree;
  Log() {
    for (const Bytes& leaf : kLeaves) tree.append(leaf_hash(leaf));
  }
  RangeHash range() const {
    return [this](auto begin, auto end) { return tree.range(begin, end); };
  }
  Bytes receipt(std::uint64_t index, std::uint64_t size) const {
    return inclusion_receipt(key(1), size, index, inclusion_proof(index, size, range()),
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
  const auto at = [&](std::uint64_t size) { return log.tree.range(0, size); };
  for (std::uint64_t m = 1; m <= 8; ++m)
    for (std::uint64_t n = m; n <= 8; ++n) {
      const Bytes receipt =
          consistency_receipt(key(1), m, n, consistency_proof(m, n, log.range()), at(n));
      EXPECT_TRUE(verify_consistency_receipt(receipt, at(m), at(n), key(1).public_key()));
      EXPECT_FALSE(verify_consistency_receipt(receipt, at(m), at(n), key(2).public_key()));
      if (m < n) {
        EXPECT_FALSE(verify_consistency_receipt(receipt, at(n), at(n), key(1).public_key()));
      }
      EXPECT_FALSE(verify_inclusion_receipt(receipt, kLeaves[0], key(1).public_key()));
    }
}

}  // namespace
}  // namespace discreet::ledger
