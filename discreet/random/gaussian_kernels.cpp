#include "discreet/random/gaussian_kernels_impl.h"
#include "discreet/random/uint128.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/random/gaussian_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "discreet/numerics/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace discreet::random::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fn = discreet::numerics::HWY_NAMESPACE;
namespace cf = discreet::numerics::coefficients;

// word · 2^-64, rounded once: both halves are placed exactly under powers of two, and only the last
// addition rounds.
template <class D, class V64>
HWY_INLINE hn::Vec<D> UnitInterval(D d, V64 word) {
  const hn::RebindToUnsigned<D> du;
  const auto high = hn::BitCast(
      d, hn::Or(hn::ShiftRight<32>(word), hn::Set(du, 0x4530000000000000)));  // 2^84 + high·2^32
  const auto low = hn::BitCast(
      d, hn::Or(hn::And(word, hn::Set(du, 0xFFFFFFFF)), hn::Set(du, 0x4330000000000000)));
  return hn::Mul(hn::Add(hn::Sub(high, hn::Set(d, 0x1p84 + 0x1p52)), low), hn::Set(d, 0x1p-64));
}

// -2 log u for u in [2^-128, 1], within 6 roundings of relative error 2^-53.
template <class D, class V>
HWY_INLINE V SquaredRadius(D d, V u) {
  V k, f;
  fn::LogParts(d, u, k, f);
  const V s = hn::Div(f, hn::Add(hn::Set(d, 2.0), f));
  const V fraction = hn::Mul(s, fn::Polynomial(d, hn::Mul(s, s), cf::kNoiseLog));
  return hn::Add(hn::Mul(k, hn::Set(d, cf::kMinusTwoLn2)), fraction);
}

// Bits 0 to 51 of the angle are a place t within a quarter turn, from -1/2 to 1/2; bit 62 mirrors
// it left to right, bit 63 at the diagonal: each quarter of the circle once.
template <class D, class V, class V64>
HWY_INLINE void Polar(D d, V squared_radius, V64 angle, V& z0, V& z1) {
  const hn::RebindToUnsigned<D> du;
  const auto one_to_two =
      hn::Or(hn::And(angle, hn::Set(du, 0x000FFFFFFFFFFFFF)), hn::Set(du, 0x3FF0000000000000));
  const V t = hn::Sub(hn::BitCast(d, one_to_two), hn::Set(d, 1.5));
  const V z = hn::Mul(t, t);
  const V s = hn::Mul(t, fn::Polynomial(d, z, cf::kNoiseSin));
  const V right = hn::Add(hn::Set(d, 1.0), hn::Mul(z, fn::Polynomial(d, z, cf::kNoiseCos)));
  const auto mirror = hn::And(hn::ShiftLeft<1>(angle), hn::Set(du, std::uint64_t{1} << 63));
  const V c = hn::Xor(right, hn::BitCast(d, mirror));
  const V r = hn::Sqrt(squared_radius);
  const auto sign = hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<D>(), angle));
  const auto diagonal = hn::MaskFromVec(hn::BitCast(d, sign));
  z0 = hn::Mul(r, hn::IfThenElse(diagonal, s, c));
  z1 = hn::Mul(r, hn::IfThenElse(diagonal, c, s));
}

// Parts two vectors of alternating elements into evens and odds, in an order that Part undoes when
// applied to its own results.
template <class D, class V>
HWY_INLINE void Part(D d, V a, V b, V& even, V& odd) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  even = a;
  odd = b;
#else
  even = hn::InterleaveLower(d, a, b);
  odd = hn::InterleaveUpper(d, a, b);
#endif
}

// Radii first, then angles: both at once are a chain of operations so long that a processor sees no
// second one to work on meanwhile.
std::size_t BoxMuller(const std::uint64_t* words, std::size_t pairs, double* z,
                      std::uint32_t* rare) {
  const hn::ScalableTag<double> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN double squares[kTileWords / 2];
  std::size_t found = 0;
  for (std::size_t i = 0; i < 2 * pairs; i += 2 * lanes) {
    hn::Vec<decltype(du)> radius, angle;
    Part(du, hn::LoadU(du, words + i), hn::LoadU(du, words + i + lanes), radius, angle);
    const auto u = UnitInterval(d, radius);
    hn::Store(SquaredRadius(d, u), d, squares + i / 2);
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Lt(u, hn::Set(d, 0x1p-11))))) {
      for (std::size_t k = i / 2; k < i / 2 + lanes && k < pairs; ++k) {
        if (words[2 * k] < kRareRadius) rare[found++] = static_cast<std::uint32_t>(k);
      }
    }
  }
  for (std::size_t i = 0; i < 2 * pairs; i += 2 * lanes) {
    hn::Vec<decltype(du)> radius, angle;
    Part(du, hn::LoadU(du, words + i), hn::LoadU(du, words + i + lanes), radius, angle);
    hn::Vec<decltype(d)> z0, z1, first, second;
    Polar(d, hn::Load(d, squares + i / 2), angle, z0, z1);
    Part(d, z0, z1, first, second);
    hn::StoreU(first, d, z + i);
    hn::StoreU(second, d, z + i + lanes);
  }
  return found;
}

void BoxMullerOne(double u, std::uint64_t angle, double* z) {
  const hn::CappedTag<double, 1> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  hn::Vec<decltype(d)> z0, z1;
  Polar(d, SquaredRadius(d, hn::Set(d, u)), hn::Set(du, angle), z0, z1);
  z[0] = hn::GetLane(z0);
  z[1] = hn::GetLane(z1);
}

// ---- native binary32 ----

// (word + 1/2) · 2^-32, rounded once.
template <class D, class V32>
HWY_INLINE hn::Vec<D> UnitInterval32(D d, V32 word) {
  const hn::RebindToUnsigned<D> du;
  const auto high = hn::BitCast(
      d, hn::Or(hn::ShiftRight<16>(word), hn::Set(du, 0x53000000)));  // 2^39 + high·2^16
  const auto low =
      hn::BitCast(d, hn::Or(hn::And(word, hn::Set(du, 0xFFFF)), hn::Set(du, 0x4B000000)));
  return hn::Mul(hn::Add(hn::Sub(high, hn::Set(d, 0x1p39f)), hn::Sub(low, hn::Set(d, 8388607.5f))),
                 hn::Set(d, 0x1p-32f));
}

template <class D, class V>
HWY_INLINE V Horner(D, V, V accumulated) {
  return accumulated;
}
template <class D, class V, class... Rest>
HWY_INLINE V Horner(D d, V x, V accumulated, float next, Rest... rest) {
  return Horner(d, x, hn::Add(hn::Mul(accumulated, x), hn::Set(d, next)), rest...);
}

// Polynomials below interpolate at Chebyshev nodes, to 2e-8 relative.

template <class D, class V>
HWY_INLINE V Log32(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  constexpr std::uint32_t kSqrtHalf = 0x3F3504F3;
  const auto shifted = hn::Add(hn::BitCast(du, x), hn::Set(du, 0x3F800000 - kSqrtHalf));
  const V k =
      hn::ConvertTo(d, hn::BitCast(di, hn::Sub(hn::ShiftRight<23>(shifted), hn::Set(du, 127))));
  const V f = hn::Sub(
      hn::BitCast(d, hn::Add(hn::And(shifted, hn::Set(du, 0x007FFFFF)), hn::Set(du, kSqrtHalf))),
      hn::Set(d, 1.0f));
  const V p =
      Horner(d, f, hn::Set(d, -0x1.43b246p-4f), 0x1.02814ep-3f, -0x1.0a33eap-3f, 0x1.231ce6p-3f,
             -0x1.54d03ep-3f, 0x1.999f14p-3f, -0x1.0000cep-2f, 0x1.555554p-2f);
  const V square = hn::Mul(f, f);
  const V tail = hn::Sub(hn::Mul(hn::Mul(square, f), p), hn::Mul(square, hn::Set(d, 0.5f)));
  // ln 2 in two parts; the product with the first is exact.
  const V low = hn::Add(hn::Mul(k, hn::Set(d, -0x1.bd0106p-13f)), tail);
  return hn::Add(hn::Mul(k, hn::Set(d, 0x1.63p-1f)), hn::Add(f, low));
}

template <class D, class V, class V32>
HWY_INLINE void SinCosTurn32(D d, V32 angle, V& s, V& c) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto quadrant = hn::ShiftRight<30>(hn::Add(angle, hn::Set(du, 1u << 29)));
  const auto rest = hn::Sub(angle, hn::ShiftLeft<30>(quadrant));
  const V y = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, rest)), hn::Set(d, 0x1p-30f));
  const V t = hn::Mul(y, y);
  const V sine = hn::Mul(y, Horner(d, t, hn::Set(d, -0x1.2d9b40p-8f), 0x1.465ec4p-4f,
                                   -0x1.4abbbap-1f, 0x1.921fb6p+0f));
  const V cosine = Horner(d, t, hn::Set(d, 0x1.d9c2e8p-11f), -0x1.55c57ap-6f, 0x1.03c1dcp-2f,
                          -0x1.3bd3ccp+0f, 1.0f);
  const auto one = hn::Set(du, 1), two = hn::Set(du, 2);
  const auto swap = hn::MaskFromVec(hn::BitCast(d, hn::Sub(hn::Zero(du), hn::And(quadrant, one))));
  s = hn::Xor(hn::IfThenElse(swap, cosine, sine),
              hn::BitCast(d, hn::ShiftLeft<30>(hn::And(quadrant, two))));
  c = hn::Xor(hn::IfThenElse(swap, sine, cosine),
              hn::BitCast(d, hn::ShiftLeft<30>(hn::And(hn::Add(quadrant, one), two))));
}

template <class D, class V32, class V = hn::Vec<D>>
HWY_INLINE void Polar32(D d, V32 radius, V32 angle, V& z0, V& z1) {
  V s, c;
  SinCosTurn32(d, angle, s, c);
  const V r = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), Log32(d, UnitInterval32(d, radius))));
  z0 = hn::Mul(r, c);
  z1 = hn::Mul(r, s);
}

void BoxMullerNative32(const std::uint64_t* words, std::size_t count, float* z) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  hn::Vec<decltype(d)> z0, z1;
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < count; ++i) {
    Polar32(d, hn::Set(du, static_cast<std::uint32_t>(words[i])),
            hn::Set(du, static_cast<std::uint32_t>(words[i] >> 32)), z0, z1);
    hn::StoreU(z0, d, z + 2 * i);
    hn::StoreU(z1, d, z + 2 * i + 1);
  }
#else
  const hn::ScalableTag<std::uint64_t> d64;
  const std::size_t lanes = hn::Lanes(d64);
  const auto low_half = hn::Set(d64, 0xFFFFFFFF);
  for (std::size_t i = 0; i < count; i += 2 * lanes) {
    const auto a = hn::LoadU(d64, words + i), b = hn::LoadU(d64, words + i + lanes);
    const auto radius = hn::Or(hn::And(a, low_half), hn::ShiftLeft<32>(b));
    const auto angle = hn::Or(hn::ShiftRight<32>(a), hn::AndNot(low_half, b));
    Polar32(d, hn::BitCast(du, radius), hn::BitCast(du, angle), z0, z1);
    const auto w0 = hn::BitCast(d64, z0), w1 = hn::BitCast(d64, z1);
    const auto first = hn::Or(hn::And(w0, low_half), hn::ShiftLeft<32>(w1));
    const auto second = hn::Or(hn::ShiftRight<32>(w0), hn::AndNot(low_half, w1));
    hn::StoreU(hn::BitCast(d, first), d, z + 2 * i);
    hn::StoreU(hn::BitCast(d, second), d, z + 2 * (i + lanes));
  }
#endif
}

// ---- what is done with the values ----

void ScaleToDouble(double stddev, const double* z, std::size_t n, double* out) {
  const hn::ScalableTag<double> d;
  const auto s = hn::Set(d, stddev);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(s, hn::LoadU(d, z + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = stddev * z[i];
}

void AddToDouble(double stddev, const double* z, std::size_t n, double* x) {
  const hn::ScalableTag<double> d;
  const auto s = hn::Set(d, stddev);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::Mul(s, hn::LoadU(d, z + i))), d, x + i);
  }
  for (; i < n; ++i) x[i] = x[i] + stddev * z[i];
}

void ScaleToFloat(double stddev, const double* z, std::size_t n, float* out) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto s = hn::Set(d, stddev);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::DemoteTo(df, hn::Mul(s, hn::LoadU(d, z + i))), df, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<float>(stddev * z[i]);
}

void AddToFloat(double stddev, const double* z, std::size_t n, float* x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto s = hn::Set(d, stddev);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto old = hn::PromoteTo(d, hn::LoadU(df, x + i));
    hn::StoreU(hn::DemoteTo(df, hn::Add(old, hn::Mul(s, hn::LoadU(d, z + i)))), df, x + i);
  }
  for (; i < n; ++i) x[i] = static_cast<float>(double{x[i]} + stddev * z[i]);
}

void ScaleFloat(float stddev, const float* z, std::size_t n, float* out) {
  const hn::ScalableTag<float> d;
  const auto s = hn::Set(d, stddev);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(s, hn::LoadU(d, z + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = stddev * z[i];
}

}  // namespace discreet::random::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::random::kernels {

HWY_EXPORT(BoxMuller);
HWY_EXPORT(BoxMullerOne);
HWY_EXPORT(BoxMullerNative32);
HWY_EXPORT(ScaleToDouble);
HWY_EXPORT(AddToDouble);
HWY_EXPORT(ScaleToFloat);
HWY_EXPORT(AddToFloat);
HWY_EXPORT(ScaleFloat);

std::size_t box_muller(const std::uint64_t* words, std::size_t pairs, double* z,
                       std::uint32_t* rare) noexcept {
  return HWY_DYNAMIC_DISPATCH(BoxMuller)(words, pairs, z, rare);
}

void box_muller_one(double u, std::uint64_t angle, double* z) noexcept {
  HWY_DYNAMIC_DISPATCH(BoxMullerOne)(u, angle, z);
}

double extended_uniform(std::uint64_t radius, std::uint64_t further) noexcept {
  const auto u = (static_cast<Uint128>(radius) << 64) | further;
  return u == 0 ? 0x1p-128 : static_cast<double>(u) * 0x1p-128;
}

void box_muller_native32(const std::uint64_t* words, std::size_t count, float* z) noexcept {
  HWY_DYNAMIC_DISPATCH(BoxMullerNative32)(words, count, z);
}

void scale_to(double stddev, const double* z, std::size_t n, double* out) noexcept {
  HWY_DYNAMIC_DISPATCH(ScaleToDouble)(stddev, z, n, out);
}
void scale_to(double stddev, const double* z, std::size_t n, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(ScaleToFloat)(stddev, z, n, out);
}
void add_to(double stddev, const double* z, std::size_t n, double* x) noexcept {
  HWY_DYNAMIC_DISPATCH(AddToDouble)(stddev, z, n, x);
}
void add_to(double stddev, const double* z, std::size_t n, float* x) noexcept {
  HWY_DYNAMIC_DISPATCH(AddToFloat)(stddev, z, n, x);
}
void scale_to(float stddev, const float* z, std::size_t n, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(ScaleFloat)(stddev, z, n, out);
}

}  // namespace discreet::random::kernels
#endif
