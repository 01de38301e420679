#include "discreet/admission/ed25519.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

struct Case {
  std::string name;
  bool accept;
  Bytes key, message, signature;
};

std::vector<Case> cases() {
  std::ifstream file(DISCREET_GOLDEN "/ed25519.txt");
  std::vector<Case> out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, verdict, key, message, signature;
    words >> name >> verdict >> key >> message >> signature;
    out.push_back({name, verdict == "accept", from_hex(key),
                   message == "-" ? Bytes{} : from_hex(message), from_hex(signature)});
  }
  return out;
}

bool accepts(const Case& c) {
  try {
    return PublicKey::from_bytes(c.key).verifies(c.message, c.signature);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    return false;
  }
}

TEST(Ed25519, AcceptsAndRefusesAsTheStrictProfileSays) {
  int accepted = 0, refused = 0;
  for (const Case& c : cases()) {
    EXPECT_EQ(accepts(c), c.accept) << c.name;
    (c.accept ? accepted : refused)++;
  }
  EXPECT_EQ(accepted, 26);  // 5 of RFC 8032, 20 honest, 1 of mixed order
  EXPECT_GT(refused, 150);
}

TEST(Ed25519, SignsTheVectorsOfRfc8032) {
  std::ifstream file(DISCREET_GOLDEN "/rfc8032.txt");
  int seen = 0;
  for (std::string seed, key, message, signature; file >> seed >> key >> message >> signature;) {
    const SigningKey signer = SigningKey::from_seed(from_hex(seed));
    EXPECT_EQ(to_hex(signer.public_key().bytes()), key);
    EXPECT_EQ(to_hex(signer.sign(message == "-" ? Bytes{} : from_hex(message))), signature);
    ++seen;
  }
  EXPECT_EQ(seen, 5);
}

// OpenSSL also rejects S >= L; the profile does not rely on that.
TEST(Ed25519, ScalarsAreBelowTheOrderOfTheBasePoint) {
  Bytes order = from_hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
  EXPECT_FALSE(is_strict_scalar(order));
  order[0]--;
  EXPECT_TRUE(is_strict_scalar(order));
  EXPECT_FALSE(is_strict_scalar(ByteView(order).first(31)));
}

TEST(Ed25519, KeysOfLowOrderAreRefusedWhenTheyAreRead) {
  for (const Case& c : cases()) {
    if (c.name.starts_with("low_a")) {
      EXPECT_THROW(PublicKey::from_bytes(c.key), Error) << c.name;
      EXPECT_THROW(PublicKey::from_text(to_hex(c.key)), Error) << c.name;
    }
  }
}

TEST(Ed25519, KeysGoToPemAndBackWithAndWithoutPassphrase) {
  const SigningKey key = SigningKey::generate();
  const PublicKey expected = key.public_key();
  EXPECT_EQ(SigningKey::from_pem(key.to_pem()).public_key(), expected);
  EXPECT_EQ(PublicKey::from_text(expected.to_pem()), expected);
  EXPECT_EQ(PublicKey::from_text(to_hex(expected.bytes()) + "\n"), expected);
  const std::string sealed = key.to_pem("correct horse");
  EXPECT_TRUE(SigningKey::is_encrypted(sealed));
  EXPECT_FALSE(SigningKey::is_encrypted(key.to_pem()));
  EXPECT_EQ(SigningKey::from_pem(sealed, "correct horse").public_key(), expected);
  for (const char* wrong : {"", "correct horsf"}) {
    try {
      SigningKey::from_pem(sealed, wrong);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
      EXPECT_NE(error.sentence().find("passphrase"), std::string::npos);
    }
  }
}

// OpenSSL reads a passphrase into a buffer of 1024 bytes.
TEST(Ed25519, APassphraseThatCouldNotOpenTheKeyAgainIsRefused) {
  const SigningKey key = SigningKey::generate();
  const std::string longest(1024, 'p');
  EXPECT_EQ(SigningKey::from_pem(key.to_pem(longest), longest).public_key(), key.public_key());
  try {
    static_cast<void>(key.to_pem(longest + "p"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_NE(error.sentence().find("1025 bytes"), std::string::npos);
  }
}

TEST(Ed25519, OtherKeysAndDamagedFilesAreRefused) {
  const std::string pem = SigningKey::generate().to_pem();
  for (const std::string& bad :
       {std::string(), std::string("no key"), pem.substr(0, 60), std::string(1 << 21, 'x'),
        std::string("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}) {
    EXPECT_THROW(SigningKey::from_pem(bad), Error);
    EXPECT_THROW(PublicKey::from_text(bad), Error);
  }
}

}  // namespace
}  // namespace discreet::admission
