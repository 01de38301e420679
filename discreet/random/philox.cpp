#include "discreet/random/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/random/philox.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef DISCREET_RANDOM_PHILOX_CONSTANTS
#define DISCREET_RANDOM_PHILOX_CONSTANTS
namespace discreet::random {
namespace {
constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;
}  // namespace
}  // namespace discreet::random
#endif

HWY_BEFORE_NAMESPACE();
namespace discreet::random::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

std::size_t Fill(PhiloxKey, std::uint64_t, std::uint64_t, std::size_t, std::uint64_t*) {
  return 0;  // philox_fill does the rest block by block
}

#else

using D64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<D64>;

// Each word lives in the low half of a 64-bit lane. The high half is left dirty on the way: MulEven
// reads low halves only, so nothing need be masked before the last round.
struct State {
  V64 x0, x1, x2, x3;
};

HWY_INLINE V64 MulLow(V64 a, V64 multiplier) {
  const hn::RepartitionToNarrow<D64> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, multiplier));
}

HWY_INLINE void Round(State& s, V64 m0, V64 m1, V64 k0, V64 k1) {
  const V64 p0 = MulLow(s.x0, m0);
  const V64 p1 = MulLow(s.x2, m1);
  s.x0 = hn::Xor3(hn::ShiftRight<32>(p1), s.x1, k0);
  s.x1 = p1;
  s.x2 = hn::Xor3(hn::ShiftRight<32>(p0), s.x3, k1);
  s.x3 = p0;
}

HWY_INLINE V64 Join(V64 low, V64 high) {
  const D64 d;
  return hn::Or(hn::And(low, hn::Set(d, 0xFFFFFFFF)), hn::ShiftLeft<32>(high));
}

// Whole groups of kUnroll vectors of blocks; returns how many blocks were written.
std::size_t Fill(PhiloxKey key, std::uint64_t high, std::uint64_t first, std::size_t blocks,
                 std::uint64_t* words) {
  // Independent chains that hide the latency of the multiply, as many as the registers hold.
  constexpr std::size_t kUnroll = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM ? 4 : 2;
  const D64 d;
  const std::size_t lanes = hn::Lanes(d);
  // Lane 2i holds block i and lane 2i+1 block lanes/2 + i, so that interleaving within 128 bits
  // puts the words in memory order.
  HWY_ALIGN std::uint64_t order[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < lanes; ++i) order[i] = i / 2 + (i % 2) * (lanes / 2);
  const V64 offsets = hn::Load(d, order);
  const V64 m0 = hn::Set(d, kMultiplier0), m1 = hn::Set(d, kMultiplier1);
  const V64 high_low = hn::Set(d, high & 0xFFFFFFFF), high_high = hn::Set(d, high >> 32);

  std::size_t done = 0;
  for (; done + kUnroll * lanes <= blocks; done += kUnroll * lanes) {
    State s[kUnroll];
    for (std::size_t u = 0; u < kUnroll; ++u) {
      const V64 low = hn::Add(hn::Set(d, first + done + u * lanes), offsets);
      s[u] = {low, hn::ShiftRight<32>(low), high_low, high_high};
    }
    std::uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < kRounds; ++round) {
      const V64 v0 = hn::Set(d, k0), v1 = hn::Set(d, k1);
      for (std::size_t u = 0; u < kUnroll; ++u) Round(s[u], m0, m1, v0, v1);
      k0 += kWeyl0;
      k1 += kWeyl1;
    }
    for (std::size_t u = 0; u < kUnroll; ++u) {
      const V64 even = Join(s[u].x0, s[u].x1), odd = Join(s[u].x2, s[u].x3);
      std::uint64_t* out = words + 2 * (done + u * lanes);
      hn::StoreU(hn::InterleaveLower(d, even, odd), d, out);
      hn::StoreU(hn::InterleaveUpper(d, even, odd), d, out + lanes);
    }
  }
  return done;
}

#endif

}  // namespace discreet::random::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::random {

HWY_EXPORT(Fill);

PhiloxBlock philox4x32_10(PhiloxBlock x, PhiloxKey key) noexcept {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * x[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * x[2];
    x = {static_cast<std::uint32_t>(p1 >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return x;
}

void philox_fill(PhiloxKey key, std::uint64_t high, std::uint64_t first,
                 std::span<std::uint64_t> words) noexcept {
  const std::size_t whole = words.size() / 2;
  std::size_t i = HWY_DYNAMIC_DISPATCH(Fill)(key, high, first, whole, words.data());
  for (; 2 * i < words.size(); ++i) {
    const std::uint64_t low = first + i;
    const PhiloxBlock x =
        philox4x32_10({static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                       static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)},
                      key);
    words[2 * i] = x[0] | std::uint64_t{x[1]} << 32;
    if (2 * i + 1 < words.size()) words[2 * i + 1] = x[2] | std::uint64_t{x[3]} << 32;
  }
}

}  // namespace discreet::random
#endif
