#include "discreet/random/generator.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "discreet/base/fork_testing.h"
#include "discreet/numerics/targets_testing.h"
#include "discreet/random/aes_wide_impl.h"
#include "discreet/random/subsets.h"
#include "discreet/random/word_reader.h"

namespace discreet::random {
namespace {

constexpr std::array kAlgorithms = {Algorithm::kPhilox4x32, Algorithm::kAes128Ctr,
                                    Algorithm::kChaCha20};

Key padded_key(const std::string& hex_bytes) {
  Bytes bytes = from_hex(hex_bytes);
  bytes.resize(Key::kSize);
  return Key::from_bytes(bytes);
}

std::string hex_of(std::span<const std::uint64_t> words) {
  return to_hex({reinterpret_cast<const std::uint8_t*>(words.data()), words.size_bytes()});
}

// Random123 1.14, tests/kat_vectors, philox4x32 10.
struct PhiloxAnswer {
  PhiloxBlock counter;
  PhiloxKey key;
  PhiloxBlock block;
};
constexpr PhiloxAnswer kPhiloxAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, MatchesTheKnownAnswersOfRandom123) {
  for (const PhiloxAnswer& answer : kPhiloxAnswers) {
    EXPECT_EQ(philox4x32_10(answer.counter, answer.key), answer.block);
  }
}

TEST(Philox, FillMatchesTheKnownAnswersAtTheSameCounters) {
  for (const PhiloxAnswer& answer : kPhiloxAnswers) {
    const auto& c = answer.counter;
    std::array<std::uint64_t, 2> words;
    philox_fill(answer.key, c[2] | std::uint64_t{c[3]} << 32, c[0] | std::uint64_t{c[1]} << 32,
                words);
    EXPECT_EQ(words[0], answer.block[0] | std::uint64_t{answer.block[1]} << 32);
    EXPECT_EQ(words[1], answer.block[2] | std::uint64_t{answer.block[3]} << 32);
  }
}

TEST(Philox, VectorFormHasTheBitsOfTheScalarFormOnEveryTarget) {
  const PhiloxKey key = {0xa4093822, 0x299f31d0};
  // Starts just below a carry out of the low 32 bits of the counter.
  const std::uint64_t high = 0x0370734413198a2e, first = 0x85a308d3fffffff5;
  numerics::for_each_target([&] {
    for (const std::size_t size : {1u, 2u, 63u, 64u, 65u, 257u}) {
      std::vector<std::uint64_t> words(size);
      philox_fill(key, high, first, words);
      for (std::size_t i = 0; i < size; ++i) {
        const std::uint64_t low = first + i / 2;
        const PhiloxBlock x =
            philox4x32_10({static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                           0x13198a2e, 0x03707344},
                          key);
        const std::size_t half = 2 * (i % 2);
        ASSERT_EQ(words[i], x[half] | std::uint64_t{x[half + 1]} << 32)
            << "word " << i << " of " << size;
      }
    }
  });
}

// Runs f as this processor would, as one without AVX-512, and as one without VAES, where AES is
// OpenSSL's.
void with_and_without_wide_aes(const std::function<void()>& f) {
  f();
  hwy::SetSupportedTargetsForTest(HWY_SSE4 | HWY_AVX2);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  f();
  hwy::SetSupportedTargetsForTest(HWY_SSE4);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_FALSE(has_wide_aes());
  f();
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Aes, MatchesTheCounterModeExampleOfNist) {
  // SP 800-38A F.5.1 (CTR-AES128): ciphertext xor plaintext is the key stream from the counter
  // f0f1…feff on. Here that counter is step 0xf0f1f2, tensor 0xf3f4f5f6f7, block
  // 0xf8f9fafbfcfdfeff.
  const Bytes plain = from_hex(
      "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
      "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
  const Bytes cipher = from_hex(
      "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
      "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee");
  Bytes expected;
  for (std::size_t i = 0; i < plain.size(); ++i) expected.push_back(plain[i] ^ cipher[i]);
  with_and_without_wide_aes([&] {
    const Generator generator(Algorithm::kAes128Ctr,
                              padded_key("2b7e151628aed2a6abf7158809cf4f3c"));
    BlockSource source(generator);
    std::array<std::uint64_t, 8> words;
    source.read(Position::at(0xf0f1f2, 0xf3f4f5f6f7).high, 0xf8f9fafbfcfdfeff, words);
    EXPECT_EQ(hex_of(words), to_hex(expected));
  });
}

TEST(Aes, HasTheBitsOfOpenSslWhicheverInstructionsAreUsed) {
  const Key key = Key::from_seed(11);
  const Generator generator(Algorithm::kAes128Ctr, Key::from_seed(11));
  const std::uint64_t high = 0x0123456789abcdef, block = 0x00000000fffffff0;
  // OpenSSL's key stream from the counter high·2^64 + block.
  std::vector<std::uint64_t> expected(1001), zeros(1001);
  std::array<std::uint8_t, 16> counter;
  for (int i = 0; i < 8; ++i) {
    counter[i] = static_cast<std::uint8_t>(high >> (56 - 8 * i));
    counter[8 + i] = static_cast<std::uint8_t>(block >> (56 - 8 * i));
  }
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  int written = 0;
  ASSERT_EQ(EVP_EncryptInit_ex(context, EVP_aes_128_ctr(), nullptr, key.secret_bytes().data(),
                               counter.data()),
            1);
  ASSERT_EQ(EVP_EncryptUpdate(context, reinterpret_cast<std::uint8_t*>(expected.data()), &written,
                              reinterpret_cast<const std::uint8_t*>(zeros.data()), 8 * 1001),
            1);
  EVP_CIPHER_CTX_free(context);
  with_and_without_wide_aes([&] {
    BlockSource source(generator);
    for (const std::size_t size : {1u, 2u, 7u, 63u, 64u, 65u, 1001u}) {
      std::vector<std::uint64_t> words(size);
      source.read(high, block, words);
      EXPECT_TRUE(std::equal(words.begin(), words.end(), expected.begin())) << size;
    }
  });
}

TEST(ChaCha, MatchesTheBlockFunctionExamplesOfRfc8439) {
  const Generator generator(
      Algorithm::kChaCha20,
      padded_key("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"));
  BlockSource source(generator);
  std::array<std::uint64_t, 8> words;
  // Section 2.3.2: counter 1, nonce 00000009 0000004a 00000000 (bytes in order).
  source.read(0x4a000000, 4 * 0x0900000000000001, words);
  EXPECT_EQ(hex_of(words),
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e");
  // Section 2.4.2: counter 1, nonce 00000000 0000004a 00000000.
  source.read(0x4a000000, 4, words);
  EXPECT_EQ(hex_of(words),
            "224f51f3401bd9e12fde276fb8631ded8c131f823d2c06e27e4fcaec9ef3cf78"
            "8a3b0aa372600a92b57974cded2b9334794cba40c63e34cdea212c4cf07d41b7");
}

TEST(Generator, GivesTheSameBlocksHoweverARangeIsCut) {
  with_and_without_wide_aes([] {
    for (const Algorithm algorithm : kAlgorithms) {
      const Generator generator(algorithm, Key::from_seed(1));
      const std::uint64_t high = Position::at(7, 9).high;
      // Crosses the 32-bit boundary of ChaCha's counter.
      const std::uint64_t first = 4 * 0xfffffff0ull;
      std::vector<std::uint64_t> whole(4096);
      BlockSource(generator).read(high, first, whole);
      BlockSource source(generator);
      for (const std::size_t piece : {2u, 6u, 10u, 62u, 514u}) {
        std::vector<std::uint64_t> cut(whole.size());
        for (std::size_t i = 0; i < cut.size(); i += piece) {
          const std::size_t n = std::min(piece, cut.size() - i);
          source.read(high, first + i / 2, std::span(cut).subspan(i, n));
        }
        EXPECT_EQ(cut, whole) << "pieces of " << piece;
      }
      // Backwards, and half blocks.
      for (std::size_t i = whole.size(); i > 0; i -= 2) {
        std::array<std::uint64_t, 1> one;
        source.read(high, first + i / 2 - 1, one);
        ASSERT_EQ(one[0], whole[i - 2]);
      }
    }
  });
}

TEST(Generator, StreamsStepsTensorsAndAlgorithmsDiffer) {
  std::vector<std::uint64_t> all;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::string_view name : {stream::kNoise, stream::kSampling}) {
      const Generator generator(algorithm, Key::from_seed(1).derive(name));
      BlockSource source(generator);
      for (const auto& [step, tensor] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
        std::array<std::uint64_t, 256> words;
        source.read(Position::at(step, tensor).high, 0, words);
        all.insert(all.end(), words.begin(), words.end());
      }
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end())
      << "6144 words of 64 bits collide with probability 1e-12";
}

TEST(Generator, SecureIsNeverPhilox) {
  const Generator generator = Generator::secure(Key::from_system());
  EXPECT_TRUE(generator.is_secure());
  EXPECT_FALSE(Generator(Algorithm::kPhilox4x32, Key::from_seed(0)).is_secure());
}

TEST(WordReader, ReadsItsReserveAndNotAWordMore) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Generator generator(algorithm, Key::from_seed(3));
    BlockSource source(generator);
    const Position position = Position::at(2, 4);
    std::vector<std::uint64_t> reserve(2 * kReserveBlocks);
    source.read(position.high, position.reserve(5), reserve);
    WordReader reader(source, position, 5);
    for (const std::uint64_t word : reserve) ASSERT_EQ(reader.next(), word);
    try {
      reader.next();
      FAIL() << "read past the reserve";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRngConsumptionViolation);
    }
  }
}

TEST(Generator, DrawsNothingInAForkedProcess) {
  const Generator secret = Generator::secure(Key::from_system());
  const Generator stored(Algorithm::kChaCha20, Key::from_bytes(Bytes(32, 7)));
  const Generator derived = secret.fork("stream");
  const auto draw = [](const Generator& generator) {
    std::vector<std::uint64_t> out(2);
    BlockSource(generator).read(0, 0, out);
  };
  for (const Generator* generator : {&secret, &stored, &derived}) {
    draw(*generator);
    EXPECT_EQ(code_in_fork([&] { draw(*generator); }), ErrorCode::kRngConsumptionViolation);
    EXPECT_EQ(code_in_fork([&] { draw(generator->fork("more")); }),
              ErrorCode::kRngConsumptionViolation);
    EXPECT_EQ(code_in_fork([&] {
                poisson_subset(*generator, Position::at(0, 0), {0, 9}, 0.5);
              }),
              ErrorCode::kRngConsumptionViolation);
    draw(*generator);
  }
  // Generators that the child creates are its own, until it forks too.
  EXPECT_EQ(code_in_fork([&] {
              const Generator own = Generator::secure(Key::from_system());
              draw(own);
              if (code_in_fork([&] { draw(own); }) == ErrorCode::kRngConsumptionViolation)
                draw(secret);
            }),
            ErrorCode::kRngConsumptionViolation);
  // A public seed protects nobody, and tests may share it.
  EXPECT_EQ(code_in_fork([&] { draw(Generator(Algorithm::kAes128Ctr, Key::from_seed(1))); }),
            std::nullopt);
}

TEST(Generator, ForksIntoStreamsThatShareNoBlock) {
  for (const Algorithm algorithm :
       {Algorithm::kPhilox4x32, Algorithm::kAes128Ctr, Algorithm::kChaCha20}) {
    const Generator whole(algorithm, Key::from_seed(5));
    const auto words = [](const Generator& generator) {
      std::vector<std::uint64_t> out(8);
      BlockSource(generator).read(1, 2, out);
      return out;
    };
    EXPECT_EQ(whole.fork("a").algorithm(), algorithm);
    EXPECT_EQ(words(whole.fork("a")), words(Generator(algorithm, Key::from_seed(5).derive("a"))));
    EXPECT_NE(words(whole.fork("a")), words(whole.fork("b")));
    EXPECT_NE(words(whole.fork("a")), words(whole));
  }
}

}  // namespace
}  // namespace discreet::random
