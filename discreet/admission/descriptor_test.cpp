#include "discreet/admission/descriptor.h"

#include <gtest/gtest.h>

#include <set>

#include "discreet/admission/cose.h"
#include "discreet/admission/statement.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error_testing.h"

namespace discreet::admission {
namespace {

Descriptor example() {
  Descriptor d;
  d.contributor = "clinic-7";
  d.data_class = "clinical";
  d.clip_norm = parse_scaled("0.5", "C");
  d.noise_multiplier = parse_scaled("1.25", "z");
  d.occurrences = 20;
  d.not_before = parse_instant("2026-01-01", "from");
  d.not_after = parse_instant("2027-01-01T00:00:00Z", "to");
  d.content_anchor = sha256(bytes_of("payload"));
  d.nonce[0] = 7;
  return d;
}

TEST(Scaled, ReadsDecimalsExactlyAndRefusesWhatItWouldRound) {
  EXPECT_EQ(parse_scaled("0.1", "x").units, 100'000'000u);
  EXPECT_EQ(parse_scaled("3", "x").units, 3'000'000'000u);
  EXPECT_EQ(parse_scaled("0.000000001", "x").units, 1u);
  EXPECT_EQ(parse_scaled("9007199.254740992", "x").units, Scaled::kMost);
  for (const char* bad : {"", ".", "1.", ".5", "0.0000000001", "-1", "+1", "1e3", "nan", "9007200",
                          "9007199.254740993", "1 ", "0x1", "99999999999999999999"})
    EXPECT_EQ(code_of([&] { parse_scaled(bad, "x"); }), ErrorCode::kInvalidInput) << bad;
  for (const char* text : {"0.1", "3", "0.000000001", "12.34"})
    EXPECT_EQ(parse_scaled(text, "x").to_text(), text);
}

TEST(Scaled, RoundsToTheSideThatIsAskedFor) {
  for (std::uint64_t units :
       {1ull, 3ull, 100'000'000ull, 333'333'333ull, 1'000'000'000ull, 9'007'199'254'740'991ull}) {
    // long double holds units / 10^9 to 64 bits, eleven more than binary64.
    const long double exact = static_cast<long double>(units) / 1e9L;
    EXPECT_LE(static_cast<long double>(Scaled{units}.from_below()), exact * (1 + 0x1p-63L));
    EXPECT_GE(static_cast<long double>(Scaled{units}.from_above()), exact * (1 - 0x1p-63L));
    EXPECT_LE(Scaled{units}.from_above() - Scaled{units}.from_below(), 0x1p-51 * exact);
  }
}

TEST(Instant, ReadsDaysAndTimesAndRefusesOthers) {
  EXPECT_EQ(parse_instant("1970-01-02", "t"), 86400);
  EXPECT_EQ(parse_instant("2026-11-16T12:34:56Z", "t"), 1794832496);
  EXPECT_EQ(instant_text(1794832496), "2026-11-16T12:34:56Z");
  EXPECT_EQ(instant_text(parse_instant("2024-02-29", "t")), "2024-02-29T00:00:00Z");
  for (const char* bad :
       {"", "2026-13-01", "2025-02-29", "1969-12-31", "2026-11-16T24:00:00Z", "2026-11-16T12:00:00",
        "2026-11-16 12:00:00Z", "16.11.2026", "yesterday!"})
    EXPECT_EQ(code_of([&] { parse_instant(bad, "t"); }), ErrorCode::kInvalidInput) << bad;
}

TEST(Descriptor, GoesToItsCanonicalBytesAndBack) {
  Descriptor d = example();
  EXPECT_EQ(decode_descriptor(encode(d)), d);
  d.adapter = "lora-1";
  d.promise = Promise::kAmplified;
  EXPECT_EQ(decode_descriptor(encode(d)), d);
  // Integers only: whatever is in it, no float and no tag.
  const cbor::Value map = cbor::decode(encode(d));
  for (const cbor::Entry& entry : map.as_map()) {
    EXPECT_EQ(entry.key.type(), cbor::Type::kUnsigned);
    EXPECT_NE(entry.value.type(), cbor::Type::kFloat);
  }
}

TEST(Descriptor, HasTheBytesThatItsFormatSays) {
  EXPECT_EQ(to_hex(encode(example())),
            "ab00766469736372656574"
            "2e64657363726970746f722e7631"
            "0168636c696e69632d37"
            "0268636c696e6963616c"
            "031a1dcd6500"
            "041a4a817c80"
            "0514"
            "0600"
            "071a6955b900"
            "081a6b36ec80"
            "095820239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5"
            "0a58200700000000000000000000000000000000000000000000000000000000000000");
}

TEST(Descriptor, ChangesItsHashWithEveryField) {
  std::set<Digest> hashes = {hash_of(encode(example()))};
  const auto with = [&](auto change) {
    Descriptor d = example();
    change(d);
    hashes.insert(hash_of(encode(d)));
  };
  with([](Descriptor& d) { d.contributor = "x"; });
  with([](Descriptor& d) { d.data_class = "x"; });
  with([](Descriptor& d) { d.clip_norm.units++; });
  with([](Descriptor& d) { d.noise_multiplier.units++; });
  with([](Descriptor& d) { d.occurrences++; });
  with([](Descriptor& d) { d.promise = Promise::kAmplified; });
  with([](Descriptor& d) { d.not_before++; });
  with([](Descriptor& d) { d.not_after++; });
  with([](Descriptor& d) { d.content_anchor[5] ^= 1; });
  with([](Descriptor& d) { d.nonce[31] ^= 1; });
  with([](Descriptor& d) { d.adapter = "x"; });
  EXPECT_EQ(hashes.size(), 12u);
}

TEST(Descriptor, RefusesToBeMadeWithValuesOutOfRange) {
  const auto refused = [&](auto change) {
    Descriptor d = example();
    change(d);
    EXPECT_EQ(code_of([&] { encode(d); }), ErrorCode::kInvalidInput);
  };
  refused([](Descriptor& d) { d.contributor.clear(); });
  refused([](Descriptor& d) { d.contributor = std::string(257, 'x'); });
  refused([](Descriptor& d) { d.contributor = "\xff"; });
  refused([](Descriptor& d) { d.data_class = "Clinical"; });
  refused([](Descriptor& d) { d.clip_norm.units = 0; });
  refused([](Descriptor& d) { d.noise_multiplier.units = Scaled::kMost + 1; });
  refused([](Descriptor& d) { d.occurrences = 0; });
  refused([](Descriptor& d) { d.not_after = d.not_before; });
  refused([](Descriptor& d) { d.not_after = kEndOfTime; });
  refused([](Descriptor& d) { d.not_before = -1; });
}

TEST(Descriptor, MalformedBytesAreRefused) {
  const Bytes good = encode(example());
  const auto malformed = [](ByteView bytes) {
    EXPECT_EQ(code_of([&] { decode_descriptor(bytes); }), ErrorCode::kMalformed);
  };
  for (std::size_t n = 0; n < good.size(); ++n) malformed(ByteView(good).first(n));
  Bytes longer = good;
  longer.push_back(0);
  malformed(longer);
  malformed(Bytes(4096));
  const auto entries = cbor::decode(good).as_map();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto fewer = entries;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    malformed(cbor::encode(cbor::map(fewer)));
    auto changed = entries;
    changed[i].value = 1.5;
    malformed(cbor::encode(cbor::map(changed)));
  }
  auto more = entries;
  more.push_back({12, 0});
  malformed(cbor::encode(cbor::map(more)));
  more.back() = {11, ""};
  malformed(cbor::encode(cbor::map(more)));
}

TEST(Attestation, IsADetachedSignatureOverTheCanonicalBytes) {
  const SigningKey key = SigningKey::generate();
  const Bytes bytes = encode(example());
  const KeyedSignature signature = decode_signature(attest(key, bytes));
  EXPECT_TRUE(verifies(signature.message, key.public_key(), bytes));
  EXPECT_FALSE(signature.message.payload);
  Descriptor other = example();
  other.noise_multiplier.units--;
  EXPECT_FALSE(verifies(signature.message, key.public_key(), encode(other)));
  EXPECT_EQ(code_of([&] { attest(key, bytes_of("no descriptor")); }), ErrorCode::kMalformed);
}

TEST(Attestation, NoncesDiffer) { EXPECT_NE(fresh_nonce(), fresh_nonce()); }

TEST(Statement, RotationsAndRevocationsGoRound) {
  const SigningKey a = SigningKey::generate(), b = SigningKey::generate();
  const Statements read = decode_statements(
      {sign_rotation(a, b, 5), sign_revocation(a, {b.public_key().id(), a.public_key().id()}, 6)});
  ASSERT_EQ(read.rotations.size(), 1u);
  EXPECT_EQ(read.rotations[0].from, a.public_key());
  EXPECT_EQ(read.rotations[0].to, b.public_key());
  ASSERT_EQ(read.revocations.size(), 1u);
  EXPECT_EQ(read.revocations[0].keys.size(), 2u);
}

TEST(Statement, AFlippedBitAnywhereIsRefused) {
  const SigningKey a = SigningKey::generate(), b = SigningKey::generate();
  const Bytes good = sign_rotation(a, b, 5);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    EXPECT_EQ(code_of([&] { decode_statements({bad}); }), ErrorCode::kMalformed) << bit;
  }
}

}  // namespace
}  // namespace discreet::admission
