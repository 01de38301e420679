#include "discreet/random/generator.h"

#include <hwy/targets.h>
#include <openssl/evp.h>

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/random/aes_wide_impl.h"

namespace discreet::random {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the words of a block are defined as little-endian");

constexpr std::size_t kZeroBytes = 16384;
alignas(64) constexpr std::array<std::uint8_t, kZeroBytes> kZeros{};

void require(bool ok, const char* what) {
  if (!ok) {
    io_error("BlockSource", "OpenSSL failed in {}", what);
  }
}

void store_big_endian(std::uint64_t value, std::uint8_t* out) noexcept {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<std::uint8_t>(value >> (56 - 8 * i));
}

std::uint32_t load_word(ByteView bytes, std::size_t index) noexcept {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + 4 * index, 4);
  return word;
}

bool has_aes_instructions() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes");
#else
  return (hwy::SupportedTargets() & HWY_NEON) != 0;  // Highway's NEON target requires AES
#endif
}

}  // namespace

Generator::Generator(Algorithm algorithm, Key stream_key)
    : algorithm_(algorithm), key_(std::move(stream_key)) {}

Generator Generator::secure(Key stream_key) {
  return Generator(has_aes_instructions() ? Algorithm::kAes128Ctr : Algorithm::kChaCha20,
                   std::move(stream_key));
}

struct BlockSource::Cipher {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  // The byte that the next update of the context yields, as a counter and an offset within 2^64
  // blocks; `valid` is false before the first seek.
  std::uint64_t high = 0;
  std::uint64_t next_block = 0;
  bool valid = false;

  Cipher(Algorithm algorithm, ByteView key) {
    require(context != nullptr, "EVP_CIPHER_CTX_new");
    const EVP_CIPHER* cipher =
        algorithm == Algorithm::kAes128Ctr ? EVP_aes_128_ctr() : EVP_chacha20();
    require(EVP_EncryptInit_ex(context, cipher, nullptr, key.data(), nullptr) == 1,
            "EVP_EncryptInit_ex");
  }
  ~Cipher() { EVP_CIPHER_CTX_free(context); }  // overwrites the expanded key
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  void set_iv(const std::array<std::uint8_t, 16>& iv) {
    require(EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, iv.data()) == 1,
            "EVP_EncryptInit_ex");
  }
  void keystream(std::uint8_t* out, std::size_t size) {
    while (size > 0) {
      const std::size_t piece = size < kZeroBytes ? size : kZeroBytes;
      int written = 0;
      require(
          EVP_EncryptUpdate(context, out, &written, kZeros.data(), static_cast<int>(piece)) == 1,
          "EVP_EncryptUpdate");
      out += piece;
      size -= piece;
    }
  }
};

struct BlockSource::WideAes {
  AesSchedule schedule;
};

BlockSource::BlockSource(const Generator& generator) : algorithm_(generator.algorithm_) {
  generator.require_own_process();
  const ByteView key = generator.key_.secret_bytes();
  if (algorithm_ == Algorithm::kPhilox4x32) {
    philox_key_ = {load_word(key, 0), load_word(key, 1)};
  } else if (algorithm_ == Algorithm::kAes128Ctr && has_wide_aes()) {
    wide_aes_ = std::make_unique<WideAes>();
    expand_aes_key(key.first<16>(), wide_aes_->schedule);
  } else {
    cipher_ = std::make_unique<Cipher>(algorithm_, key);
  }
}
BlockSource::~BlockSource() {
  if (wide_aes_ != nullptr) wipe_stack();  // of round keys that did not fit the registers
}
BlockSource::BlockSource(BlockSource&&) noexcept = default;

void BlockSource::seek(std::uint64_t high, std::uint64_t block) {
  std::array<std::uint8_t, 16> iv;
  if (algorithm_ == Algorithm::kAes128Ctr) {
    store_big_endian(high, iv.data());
    store_big_endian(block, iv.data() + 8);
    cipher_->set_iv(iv);
  } else {
    const std::uint64_t chacha_block = block / 4;
    std::memcpy(iv.data(), &chacha_block, 8);
    std::memcpy(iv.data() + 8, &high, 8);
    cipher_->set_iv(iv);
    std::array<std::uint8_t, 48> skipped;
    cipher_->keystream(skipped.data(), 16 * (block % 4));
  }
}

void BlockSource::read(std::uint64_t high, std::uint64_t block, std::span<std::uint64_t> words) {
  if (algorithm_ == Algorithm::kPhilox4x32) {
    philox_fill(philox_key_, high, block, words);
    return;
  }
  if (wide_aes_ != nullptr) {
    fill_wide_aes(wide_aes_->schedule, high, block, words);
    return;
  }
  if (!cipher_->valid || cipher_->high != high || cipher_->next_block != block) {
    cipher_->valid = false;
    seek(high, block);
  }
  cipher_->keystream(reinterpret_cast<std::uint8_t*>(words.data()), words.size_bytes());
  cipher_->high = high;
  cipher_->next_block = block + words.size() / 2;
  cipher_->valid = words.size() % 2 == 0;
}

}  // namespace discreet::random
