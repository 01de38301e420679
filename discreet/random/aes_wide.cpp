#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "discreet/random/aes_wide_impl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/random/aes_wide.cpp"
#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace discreet::random::HWY_NAMESPACE {

bool HasAvx2() { return HWY_TARGET == HWY_AVX2; }

#if HWY_TARGET == HWY_AVX3_DL

namespace hn = hwy::HWY_NAMESPACE;

bool HasWideAes() { return true; }

// FIPS 197, section 5.2. One round applied to four equal columns has no effect by its row shifts,
// which leaves the substitution of the word's bytes.
void ExpandKey(const std::uint8_t* key, std::uint8_t* round_keys) {
  const hn::Full128<std::uint8_t> d8;
  const hn::Full128<std::uint32_t> d32;
  std::uint32_t w[44];
  std::memcpy(w, key, 16);
  std::uint32_t round_constant = 1;
  for (int i = 4; i < 44; ++i) {
    std::uint32_t word = w[i - 1];
    if (i % 4 == 0) {
      const auto rotated = hn::BitCast(d8, hn::Set(d32, (word >> 8) | (word << 24)));
      word = hn::GetLane(hn::BitCast(d32, hn::AESLastRound(rotated, hn::Zero(d8))));
      word ^= round_constant;
      round_constant = (round_constant << 1) ^ (round_constant & 0x80 ? 0x11B : 0);
    }
    w[i] = w[i - 4] ^ word;
  }
  std::memcpy(round_keys, w, sizeof(w));
  OPENSSL_cleanse(w, sizeof(w));
}

constexpr std::size_t kVectors = 8;  // independent chains that hide the latency of a round
constexpr std::size_t kGroupWords = 8 * kVectors;

using D8 = hn::Full512<std::uint8_t>;
using D64 = hn::Full512<std::uint64_t>;

struct RoundKeys {
  hn::Vec<D8> k[11];
};

// kVectors vectors of key stream from `counter` on, which moves past them.
HWY_INLINE void EncryptGroup(const RoundKeys& keys, hn::Vec<D8> byte_order, hn::Vec<D64> step,
                             hn::Vec<D64>& counter, std::uint64_t* out) {
  const D8 d8;
  const D64 d64;
  hn::Vec<D8> state[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) {
    state[v] = hn::Xor(hn::TableLookupBytes(hn::BitCast(d8, counter), byte_order), keys.k[0]);
    counter = hn::Add(counter, step);
  }
  for (int round = 1; round < 10; ++round) {
    for (std::size_t v = 0; v < kVectors; ++v) state[v] = hn::AESRound(state[v], keys.k[round]);
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(hn::BitCast(d64, hn::AESLastRound(state[v], keys.k[10])), d64, out + 8 * v);
  }
}

void FillWideAes(const std::uint8_t* round_keys, std::uint64_t high, std::uint64_t block,
                 std::uint64_t* words, std::size_t size) {
  const D8 d8;
  const D64 d64;
  HWY_ALIGN constexpr std::uint8_t kReverse[16] = {7,  6,  5,  4,  3,  2,  1, 0,
                                                   15, 14, 13, 12, 11, 10, 9, 8};
  HWY_ALIGN constexpr std::uint64_t kStep[8] = {0, 4, 0, 4, 0, 4, 0, 4};
  HWY_ALIGN const std::uint64_t first[8] = {high, block,     high, block + 1,
                                            high, block + 2, high, block + 3};
  const auto byte_order = hn::LoadDup128(d8, kReverse);
  const auto step = hn::Load(d64, kStep);
  auto counter = hn::Load(d64, first);
  RoundKeys keys;
  for (int i = 0; i < 11; ++i) keys.k[i] = hn::LoadDup128(d8, round_keys + 16 * i);
  std::size_t i = 0;
  for (; i + kGroupWords <= size; i += kGroupWords) {
    EncryptGroup(keys, byte_order, step, counter, words + i);
  }
  if (i < size) {
    HWY_ALIGN std::uint64_t rest[kGroupWords];
    EncryptGroup(keys, byte_order, step, counter, rest);
    std::memcpy(words + i, rest, (size - i) * sizeof(std::uint64_t));
  }
}

#else

bool HasWideAes() { return false; }
void ExpandKey(const std::uint8_t*, std::uint8_t*) {}
void FillWideAes(const std::uint8_t*, std::uint64_t, std::uint64_t, std::uint64_t*, std::size_t) {}

#endif

}  // namespace discreet::random::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::random {

HWY_EXPORT(HasAvx2);
HWY_EXPORT(HasWideAes);
HWY_EXPORT(ExpandKey);
HWY_EXPORT(FillWideAes);

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
#define DISCREET_VAES __attribute__((target("avx2,aes,vaes")))

bool has_double_aes() noexcept {
  static const bool has = __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("vaes") != 0;
  return has && HWY_DYNAMIC_DISPATCH(HasAvx2)();
}

// As ExpandKey and FillWideAes, two blocks at once. Highway 1.0 has no such target.
DISCREET_VAES void expand_double(const std::uint8_t* key, std::uint8_t* round_keys) noexcept {
  std::uint32_t w[44];
  std::memcpy(w, key, 16);
  std::uint32_t round_constant = 1;
  for (int i = 4; i < 44; ++i) {
    std::uint32_t word = w[i - 1];
    if (i % 4 == 0) {
      const __m128i rotated = _mm_set1_epi32(static_cast<int>((word >> 8) | (word << 24)));
      word = static_cast<std::uint32_t>(
          _mm_cvtsi128_si32(_mm_aesenclast_si128(rotated, _mm_setzero_si128())));
      word ^= round_constant;
      round_constant = (round_constant << 1) ^ (round_constant & 0x80 ? 0x11B : 0);
    }
    w[i] = w[i - 4] ^ word;
  }
  std::memcpy(round_keys, w, sizeof(w));
  OPENSSL_cleanse(w, sizeof(w));
}

DISCREET_VAES void fill_double(const std::uint8_t* round_keys, std::uint64_t high,
                               std::uint64_t block, std::uint64_t* words,
                               std::size_t size) noexcept {
  constexpr std::size_t kVectors = 8, kGroupWords = 4 * kVectors;
  const __m256i byte_order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
  const __m256i step = _mm256_setr_epi64x(0, 2, 0, 2);
  __m256i counter =
      _mm256_setr_epi64x(static_cast<long long>(high), static_cast<long long>(block),
                         static_cast<long long>(high), static_cast<long long>(block + 1));
  for (std::size_t i = 0; i < size; i += kGroupWords) {
    const auto round_key = [&](int round) DISCREET_VAES {
      return _mm256_broadcastsi128_si256(
          _mm_load_si128(reinterpret_cast<const __m128i*>(round_keys) + round));
    };
    __m256i state[kVectors];
    for (__m256i& v : state) {
      v = _mm256_xor_si256(_mm256_shuffle_epi8(counter, byte_order), round_key(0));
      counter = _mm256_add_epi64(counter, step);
    }
    for (int round = 1; round < 10; ++round) {
      const __m256i key = round_key(round);
      for (__m256i& v : state) v = _mm256_aesenc_epi128(v, key);
    }
    for (__m256i& v : state) v = _mm256_aesenclast_epi128(v, round_key(10));
    std::memcpy(words + i, state, std::min(kGroupWords, size - i) * sizeof(std::uint64_t));
  }
}
#else
bool has_double_aes() noexcept { return false; }
void expand_double(const std::uint8_t*, std::uint8_t*) noexcept {}
void fill_double(const std::uint8_t*, std::uint64_t, std::uint64_t, std::uint64_t*,
                 std::size_t) noexcept {}
#endif

}  // namespace

AesSchedule::~AesSchedule() { OPENSSL_cleanse(round_keys.data(), round_keys.size()); }

namespace {
bool has_quadruple_aes() noexcept { return HWY_DYNAMIC_DISPATCH(HasWideAes)(); }
}  // namespace

bool has_wide_aes() noexcept { return has_quadruple_aes() || has_double_aes(); }

void expand_aes_key(std::span<const std::uint8_t, 16> key, AesSchedule& schedule) noexcept {
  if (has_quadruple_aes())
    HWY_DYNAMIC_DISPATCH(ExpandKey)(key.data(), schedule.round_keys.data());
  else
    expand_double(key.data(), schedule.round_keys.data());
}

void fill_wide_aes(const AesSchedule& schedule, std::uint64_t high, std::uint64_t block,
                   std::span<std::uint64_t> words) noexcept {
  const std::uint8_t* keys = schedule.round_keys.data();
  if (has_quadruple_aes())
    HWY_DYNAMIC_DISPATCH(FillWideAes)(keys, high, block, words.data(), words.size());
  else
    fill_double(keys, high, block, words.data(), words.size());
}

}  // namespace discreet::random
#endif
