#include "discreet/admission/cose.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

const Bytes kSeed = from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
// cose-wg/Examples, eddsa-examples/eddsa-sig-01
const char* const kTbs =
    "846a5369676e61747572653145a2012703004054546869732069732074686520636f6e74656e742e";
const char* const kSignature =
    "7142fd2ff96d56db85bee905a76ba1d0b7321a95c8c4d3607c5781932b7afb8711497dfa751bf40b58b3bcc32300b1"
    "487f3db34085eef013bf08f4a44d6fef0d";
const std::string kDetached = std::string("d28445a201270300a104423131f65840") + kSignature;

bool refused(ByteView bytes, bool strict = true) {
  try {
    if (strict) {
      decode_signature(bytes);
    } else {
      decode_sign1(bytes);
    }
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    return true;
  }
}

// A message of our kind, with parts replaced.
Bytes message_with(cbor::Value header, cbor::Value unprotected, cbor::Value payload,
                   std::size_t signature = 64, std::uint64_t tag = 18) {
  return cbor::encode(cbor::tag(tag, cbor::array({cbor::encode(header), std::move(unprotected),
                                                  std::move(payload), Bytes(signature)})));
}
const cbor::Value kKid = Bytes(16);
const cbor::Value kHeader = cbor::map({{1, -8}, {4, kKid}});
const cbor::Value kNone = cbor::map({});

TEST(Cose, TheWorkingGroupsExampleIsMadeAndVerified) {
  const SigningKey key = SigningKey::from_seed(kSeed);
  const ByteView content = bytes_of("This is the content.");
  const Sign1 ours = sign_detached(key, cbor::map({{3, 0}}), content);
  EXPECT_EQ(to_hex(signature_input(ours, content)), kTbs);
  EXPECT_EQ(to_hex(ours.signature), kSignature);
  const Sign1 theirs = decode_sign1(from_hex(kDetached));
  EXPECT_TRUE(verifies(theirs, key.public_key(), content));
  EXPECT_FALSE(verifies(theirs, key.public_key(), bytes_of("This is the content!")));
  EXPECT_FALSE(verifies(theirs, key.public_key(), content, bytes_of("aad")));
  EXPECT_EQ(to_hex(encode(theirs)), kDetached);
}

TEST(Cose, OurMessagesGoRoundAndNameTheirKey) {
  const SigningKey key = SigningKey::from_seed(kSeed);
  const Bytes bytes = sign(key, bytes_of("payload"));
  const KeyedSignature back = decode_signature(bytes);
  EXPECT_EQ(back.key_id, key.public_key().id());
  EXPECT_TRUE(verifies(back.message, key.public_key(), bytes_of("payload")));
  EXPECT_EQ(encode(back.message), bytes);
}

TEST(Cose, TheNewAlgorithmNumberIsAcceptedAndSigned) {
  const SigningKey key = SigningKey::from_seed(kSeed);
  Sign1 message;
  message.protected_header = cbor::map({{1, -19}, {4, cbor::Value(key.public_key().id())}});
  message.signature = key.sign(signature_input(message, bytes_of("x")));
  const KeyedSignature back = decode_signature(encode(message));
  EXPECT_TRUE(verifies(back.message, key.public_key(), bytes_of("x")));
  // The number is part of what is signed.
  message.protected_header = kHeader;
  EXPECT_FALSE(verifies(message, key.public_key(), bytes_of("x")));
}

TEST(Cose, WhatIsOutsideTheProfileIsMalformed) {
  EXPECT_FALSE(refused(message_with(kHeader, kNone, nullptr)));
  EXPECT_TRUE(refused(message_with(kHeader, kNone, nullptr, 63)));
  EXPECT_TRUE(refused(message_with(kHeader, kNone, nullptr, 64, 17)));
  EXPECT_TRUE(refused(message_with(kHeader, kNone, Bytes(1)))) << "not detached";
  EXPECT_TRUE(refused(message_with(kHeader, cbor::map({{1, -8}}), nullptr))) << "alg twice";
  EXPECT_TRUE(refused(message_with(cbor::map({{4, kKid}}), cbor::map({{1, -8}}), nullptr)));
  EXPECT_TRUE(refused(message_with(kHeader, cbor::map({{4, kKid}}), nullptr)));
  EXPECT_TRUE(refused(message_with(kHeader, cbor::map({{"note", 1}}), nullptr)));
  EXPECT_TRUE(refused(message_with(cbor::map({{1, -7}, {4, kKid}}), kNone, nullptr)));
  EXPECT_TRUE(refused(message_with(cbor::map({{1, -8}}), kNone, nullptr)));
  EXPECT_TRUE(refused(message_with(cbor::map({{1, -8}, {4, Bytes(15)}}), kNone, nullptr)));
  EXPECT_TRUE(refused(message_with(cbor::map({{1, -8}, {4, kKid}, {3, 0}}), kNone, nullptr)));
  EXPECT_TRUE(refused(
      message_with(cbor::map({{1, -8}, {2, cbor::array({4})}, {4, kKid}}), kNone, nullptr), false));
  EXPECT_TRUE(refused(message_with(cbor::array({}), kNone, nullptr), false));
  EXPECT_TRUE(refused(cbor::encode(cbor::array({1, 2, 3, 4})), false));
}

TEST(Cose, EveryCutAndEveryFlippedBitIsRefused) {
  const SigningKey key = SigningKey::from_seed(kSeed);
  const Bytes good = sign(key, bytes_of("payload"));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_TRUE(refused(ByteView(good).first(length)));
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_TRUE(refused(longer));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    try {
      const KeyedSignature read = decode_signature(bad);
      EXPECT_FALSE(verifies(read.message, key.public_key(), bytes_of("payload"))) << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    }
  }
}

TEST(Cose, LongHeadsInTheProtectedHeaderAreMalformed) {
  Bytes header = cbor::encode(kHeader);
  // {1: -8, ...} with -8 as 38 07
  Bytes longer = {header[0], header[1], 0x38, 0x07};
  longer.insert(longer.end(), header.begin() + 3, header.end());
  EXPECT_TRUE(refused(cbor::encode(cbor::tag(18, cbor::array({longer, kNone, nullptr, Bytes(64)}))),
                      false));
}

}  // namespace
}  // namespace discreet::admission
