#include "discreet/base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace discreet {
namespace {

// FIPS 180-4 examples.
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kMillionA =
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, MatchesThePublishedDigests) {
  EXPECT_EQ(to_hex(sha256({})), kEmpty);
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))), kAbc);
  EXPECT_EQ(to_hex(sha256(bytes_of(std::string(1'000'000, 'a')))), kMillionA);
}

TEST(Sha256, DoesNotDependOnHowTheMessageIsCut) {
  Sha256 hash;
  for (int i = 0; i < 1000; ++i) hash.update(bytes_of(std::string(1000, 'a')));
  EXPECT_EQ(to_hex(hash.finish()), kMillionA);
  EXPECT_EQ(to_hex(hash.update(bytes_of("a")).update({}).update(bytes_of("bc")).finish()), kAbc);
  EXPECT_EQ(to_hex(hash.finish()), kEmpty) << "finish begins a new message";
}

}  // namespace
}  // namespace discreet
