#include "discreet/run/checkpoint.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"

namespace discreet::run {
namespace {

Checkpoint example() {
  Checkpoint c;
  c.specification = "spec";
  c.config.fill(1);
  c.layout.fill(2);
  c.step = 17;
  c.trace = {1000, 18, {}};
  c.mechanism = {1, 2, 3};
  c.training = Bytes(100, 4);
  return c;
}

const Expected kExpected = {"spec", example().config, example().layout};

std::string refusal(ByteView bytes, const random::Key& secret, const Expected& expected,
                    ErrorCode code) {
  try {
    open(bytes, secret, expected);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.sentence();
  }
  return "accepted";
}

TEST(Checkpoint, OpensToWhatWasSealedAndIsDeterministic) {
  const random::Key secret = random::Key::from_seed(1);
  const Bytes bytes = seal(example(), secret);
  EXPECT_EQ(open(bytes, secret, kExpected), example());
  EXPECT_EQ(seal(example(), secret), bytes);
}

TEST(Checkpoint, IsRefusedWhenAnyBitIsChangedOrAnyByteIsMissing) {
  const random::Key secret = random::Key::from_seed(1);
  const Bytes good = seal(example(), secret);
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= static_cast<std::uint8_t>(1u << (i % 8));
    ASSERT_THROW(open(bad, secret, kExpected), Error) << i;
    ASSERT_THROW(open(ByteView(good).first(i), secret, kExpected), Error) << i;
  }
}

TEST(Checkpoint, OfAnotherRunIsRefusedWithWhatDiffers) {
  const random::Key secret = random::Key::from_seed(1);
  const Bytes bytes = seal(example(), secret);
  EXPECT_NE(refusal(bytes, random::Key::from_seed(2), kExpected, ErrorCode::kMalformed)
                .find("another secret.key"),
            std::string::npos);
  Expected other = kExpected;
  other.config.fill(9);
  const std::string sentence = refusal(bytes, secret, other, ErrorCode::kInvalidInput);
  EXPECT_NE(sentence.find("configuration is 0101"), std::string::npos);
  EXPECT_EQ(sentence.find("layout"), std::string::npos);
}

TEST(Checkpoint, OnAFullDiskLeavesTheLastOne) {
  const Folder folder;
  const random::Key secret = random::Key::from_seed(1);
  write_checkpoint(folder / "checkpoint.cbor", example(), secret);
  Checkpoint next = example();
  next.step = 18;
  next.training = Bytes(100000, 5);
  {
    const FullDisk full(5000);
    EXPECT_THROW(write_checkpoint(folder / "checkpoint.cbor", next, secret), Error);
  }
  EXPECT_EQ(read_checkpoint(folder / "checkpoint.cbor", secret, kExpected), example());
}

TEST(Checkpoint, HoldsNoByteOfTheSecret) {
  const random::Key secret = random::Key::from_seed(1);
  const Bytes bytes = seal(example(), secret);
  const auto key = secret.secret_bytes();
  EXPECT_EQ(std::search(bytes.begin(), bytes.end(), key.begin(), key.begin() + 8), bytes.end());
}

}  // namespace
}  // namespace discreet::run
