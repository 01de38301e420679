#include <openssl/crypto.h>

#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
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
#if HWY_TARGET == HWY_AVX3_DL || (HWY_TARGET == HWY_AVX2 && defined(__x86_64__))

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3_DL
using D8 = hn::Full512<std::uint8_t>;
using D64 = hn::Full512<std::uint64_t>;

bool HasWideAes() { return true; }

HWY_INLINE hn::Vec<D8> Round(hn::Vec<D8> state, hn::Vec<D8> key) {
  return hn::AESRound(state, key);
}
HWY_INLINE hn::Vec<D8> LastRound(hn::Vec<D8> state, hn::Vec<D8> key) {
  return hn::AESLastRound(state, key);
}
#else
using D8 = hn::Full256<std::uint8_t>;
using D64 = hn::Full256<std::uint64_t>;

// Some processors with AVX2 have VAES too, which this target of Highway's knows nothing of. Asked
// once: a virtual machine takes microseconds to answer.
bool HasWideAes() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & bit_VAES) != 0;
  }();
  return has;
}

HWY_INLINE hn::Vec<D8> Round(hn::Vec<D8> state, hn::Vec<D8> key) {
  asm("vaesenc %1, %0, %0" : "+x"(state.raw) : "xm"(key.raw));
  return state;
}
HWY_INLINE hn::Vec<D8> LastRound(hn::Vec<D8> state, hn::Vec<D8> key) {
  asm("vaesenclast %1, %0, %0" : "+x"(state.raw) : "xm"(key.raw));
  return state;
}
#endif

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
constexpr std::size_t kWords = hn::MaxLanes(D64());
constexpr std::size_t kGroupWords = kWords * kVectors;

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
    for (std::size_t v = 0; v < kVectors; ++v) state[v] = Round(state[v], keys.k[round]);
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(hn::BitCast(d64, LastRound(state[v], keys.k[10])), d64, out + kWords * v);
  }
}

void FillWideAes(const std::uint8_t* round_keys, std::uint64_t high, std::uint64_t block,
                 std::uint64_t* words, std::size_t size) {
  const D8 d8;
  const D64 d64;
  HWY_ALIGN constexpr std::uint8_t kReverse[16] = {7,  6,  5,  4,  3,  2,  1, 0,
                                                   15, 14, 13, 12, 11, 10, 9, 8};
  constexpr std::uint64_t kBlocks = kWords / 2;  // of a vector
  HWY_ALIGN constexpr std::uint64_t kStep[2] = {0, kBlocks};
  HWY_ALIGN std::uint64_t first[kWords];
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    first[2 * i] = high;
    first[2 * i + 1] = block + i;
  }
  const auto byte_order = hn::LoadDup128(d8, kReverse);
  const auto step = hn::LoadDup128(d64, kStep);
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

HWY_EXPORT(HasWideAes);
HWY_EXPORT(ExpandKey);
HWY_EXPORT(FillWideAes);

bool has_wide_aes() noexcept { return HWY_DYNAMIC_DISPATCH(HasWideAes)(); }

void expand_aes_key(std::span<const std::uint8_t, 16> key, AesSchedule& schedule) noexcept {
  HWY_DYNAMIC_DISPATCH(ExpandKey)(key.data(), schedule.round_keys.data());
}

void fill_wide_aes(const AesSchedule& schedule, std::uint64_t high, std::uint64_t block,
                   std::span<std::uint64_t> words) noexcept {
  HWY_DYNAMIC_DISPATCH(FillWideAes)
  (schedule.round_keys.data(), high, block, words.data(), words.size());
}

}  // namespace discreet::random
#endif
