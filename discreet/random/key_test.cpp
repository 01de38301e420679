#include "discreet/random/key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>

#include "discreet/base/error_testing.h"

namespace discreet::random {
namespace {

std::string hex(const Key& key) { return to_hex(key.secret_bytes()); }

TEST(Key, DerivesEachStreamByHkdfExpand) {
  // Python: hmac.new(bytes(range(32)), b"discreet/stream/1/noise\x01", "sha256").hexdigest()
  Bytes master;
  for (int i = 0; i < 32; ++i) master.push_back(static_cast<std::uint8_t>(i));
  EXPECT_EQ(hex(Key::from_bytes(master).derive("noise")),
            "b8ac1cf274a69c7c1df322426acdf9452d2cc8ce360902bbd4697537c3a0dfd7");
  EXPECT_EQ(hex(Key::from_bytes(master).derive("sampling")),
            "da0e2e2fcc50c67f427cf4626840adb9d78c21d37819c57e5ddbe9c297ab16ab");
}

TEST(Key, OfASeedIsAFixedFunctionOfIt) {
  // Python: hashlib.sha256(b"discreet/insecure-seed/1/" + (42).to_bytes(8, "little")).hexdigest()
  EXPECT_EQ(hex(Key::from_seed(42)),
            "e76ad8117a57aa65634c7b556e970ab5714eea2e753408f22607271a927bc3a4");
  EXPECT_NE(hex(Key::from_seed(0)), hex(Key::from_seed(1)));
  EXPECT_NE(hex(Key::from_seed(0)), hex(Key::from_seed(~std::uint64_t{0})));
}

TEST(Key, FromTheSystemIsFreshEachTime) {
  EXPECT_NE(hex(Key::from_system()), hex(Key::from_system()));
}

TEST(Key, MovesNeverCopiesAndCannotBePrinted) {
  static_assert(!std::is_copy_constructible_v<Key> && !std::is_copy_assignable_v<Key>);
  static_assert(std::is_nothrow_move_constructible_v<Key>);
  static_assert(!std::is_convertible_v<Key, std::string>);
  Key first = Key::from_seed(7);
  const std::string before = hex(first);
  const Key second = std::move(first);
  EXPECT_EQ(hex(second), before);
  // NOLINTNEXTLINE(bugprone-use-after-move): what is left behind is the point
  EXPECT_EQ(hex(first), "") << "a moved-from key keeps no secret";
}

TEST(Key, IsOverwrittenWhenDestroyed) {
  std::optional<Key> key = Key::from_seed(7);
  const Bytes before(key->secret_bytes().begin(), key->secret_bytes().end());
  const volatile std::uint8_t* at = key->secret_bytes().data();
  key.reset();
  // The heap keeps a list in the first 16 bytes of what is free.
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + 16, at));
  for (std::size_t i = 16; i < Key::kSize; ++i) EXPECT_EQ(at[i], 0);
}

TEST(Key, RefusesAWrongLengthAndANamelessStream) {
  EXPECT_EQ(code_of([] { Key::from_bytes(Bytes(16)); }), ErrorCode::kMalformed);
  EXPECT_EQ(code_of([] { Key::from_seed(1).derive(""); }), ErrorCode::kInvalidInput);
}

TEST(Seed, EveryValueFromZeroToTwoToThe64IsAcceptedAndNothingElse) {
  EXPECT_EQ(parse_seed("0"), 0u);
  EXPECT_EQ(parse_seed("18446744073709551615"), ~std::uint64_t{0});
  for (const char* bad : {"", "-1", "+1", "18446744073709551616", "1.0", "1e3", " 1", "1 ", "0x10",
                          "99999999999999999999999"}) {
    EXPECT_EQ(code_of([bad] { parse_seed(bad); }), ErrorCode::kInvalidDpConfig) << bad;
  }
}

}  // namespace
}  // namespace discreet::random
