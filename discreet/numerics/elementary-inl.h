// Elementary functions as Highway templates, for use inside other kernels compiled once per target:
//
//   // after hwy/highway.h, inside foreach_target
//   #include "discreet/numerics/elementary-inl.h"
//   namespace fn = discreet::numerics::HWY_NAMESPACE;
//   V y = fn::Exp(d, x);  // d: any tag of double lanes
//
// Every lane is the binary64 function of elementary.h, with the same bits on every target: only
// correctly rounded operations (+ - * / sqrt), integer operations and table look-ups are used, in a
// fixed order, never a fused multiply-add. Accuracy, special values: elementary.h.
//
// The functions named ...Positive and ...TwoPi skip the special cases their domain excludes:
//   LogPositive(d, x)              log x for x positive, normal and finite; bits of Log.
//   SinCosTwoPi(d, u, s, c)        sin and cos of 2 pi u for |u| <= 2^20, within 1 ulp; the
//                                  reduction of u is exact.
// Proof: elementary.md
#include <cstddef>
#include <cstdint>

#include "discreet/numerics/coefficients.h"
#include "discreet/numerics/strict_arithmetic.h"
#include "hwy/highway.h"

#ifndef DISCREET_NUMERICS_ELEMENTARY_ONCE_H_
#define DISCREET_NUMERICS_ELEMENTARY_ONCE_H_
namespace discreet::numerics::detail {

// x = q * pi/2 + (high + low) with |high + low| <= pi/4, for finite |x| >= 2^-10 however large.
// Returns q modulo 4. Exact to 2^-70 relative to high (Payne and Hanek).
int reduce_large_angle(double x, double& high, double& low) noexcept;

}  // namespace discreet::numerics::detail
#endif

#if defined(DISCREET_NUMERICS_ELEMENTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DISCREET_NUMERICS_ELEMENTARY_INL_H_
#undef DISCREET_NUMERICS_ELEMENTARY_INL_H_
#else
#define DISCREET_NUMERICS_ELEMENTARY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace discreet::numerics::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace cf = coefficients;

// ---- building blocks ----

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Bits(D d, std::uint64_t bits) {
  return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), bits));
}

// The one NaN returned anywhere: processors disagree on the sign of a NaN they produce.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V QuietNan(D d) {
  return Bits(d, 0x7ff8000000000000u);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Infinity(D d) {
  return Bits(d, 0x7ff0000000000000u);
}

template <class D, class V>
HWY_INLINE V NanUnlessOrdered(D d, V x, V result) {
  return hn::IfThenElse(hn::Eq(x, x), result, QuietNan(d));
}

// The first 26 significant bits of x: the product of two heads is exact.
template <class D, class V>
HWY_INLINE V Head(D d, V x) {
  return hn::And(x, Bits(d, 0xfffffffff8000000u));
}

// sum + error = a + b exactly; FastTwoSum needs |a| >= |b| or a = 0.
template <class V>
HWY_INLINE V FastTwoSum(V a, V b, V& error) {
  const V sum = hn::Add(a, b);
  error = hn::Add(hn::Sub(a, sum), b);
  return sum;
}

template <class V>
HWY_INLINE V TwoSum(V a, V b, V& error) {
  const V sum = hn::Add(a, b);
  const V from_b = hn::Sub(sum, a);
  error = hn::Add(hn::Sub(a, hn::Sub(sum, from_b)), hn::Sub(b, from_b));
  return sum;
}

// product + error = a * b up to 2^-106 relative, where nothing under- or overflows.
template <class D, class V>
HWY_INLINE V TwoProduct(D d, V a, V b, V& error) {
  const V product = hn::Mul(a, b);
  const V ah = Head(d, a), bh = Head(d, b);
  const V al = hn::Sub(a, ah), bl = hn::Sub(b, bh);
  error =
      hn::Add(hn::Add(hn::Add(hn::Sub(hn::Mul(ah, bh), product), hn::Mul(ah, bl)), hn::Mul(al, bh)),
              hn::Mul(al, bl));
  return product;
}

// c[0] + c[1] x + ... + c[N-1] x^(N-1) by halves (Estrin), so that lanes wait less than in
// Horner's.
template <std::size_t N, class D, class V>
HWY_INLINE V PolynomialTerms(D d, V x, V x2, V x4, V x8, const double* c) {
  if constexpr (N == 1) {
    return hn::Set(d, c[0]);
  } else {
    constexpr std::size_t half = N > 8 ? 8 : N > 4 ? 4 : N > 2 ? 2 : 1;
    const V power = half == 8 ? x8 : half == 4 ? x4 : half == 2 ? x2 : x;
    return hn::Add(PolynomialTerms<half>(d, x, x2, x4, x8, c),
                   hn::Mul(power, PolynomialTerms<N - half>(d, x, x2, x4, x8, c + half)));
  }
}

template <std::size_t N, class D, class V>
HWY_INLINE V Polynomial(D d, V x, const double (&c)[N]) {
  static_assert(N <= 16);
  const V x2 = hn::Mul(x, x), x4 = hn::Mul(x2, x2), x8 = hn::Mul(x4, x4);
  return PolynomialTerms<N>(d, x, x2, x4, x8, c);
}

// Adding 1.5 * 2^52 rounds |x| < 2^51 to the nearest integer, which is then also found, modulo
// 2^51, in the low bits of the sum.
inline constexpr double kRounder = 0x1.8p52;

template <class D, class V>
HWY_INLINE V RoundToInteger(D d, V x, V& sum) {
  const V rounder = hn::Set(d, kRounder);
  sum = hn::Add(x, rounder);
  return hn::Sub(sum, rounder);
}

// 2^k for an integer -1023 < k < 1024.
template <class D, class V>
HWY_INLINE V PowerOfTwo(D d, V k) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d,
                     hn::ShiftLeft<52>(hn::BitCast(du, hn::Add(k, hn::Set(d, kRounder + 1023)))));
}

// x * 2^k rounded once, for |k| < 2046 and 1/4 < |x| < 4.
template <class D, class V>
HWY_INLINE V Scale(D d, V x, V k) {
  V sum;
  const V half = RoundToInteger(d, hn::Mul(k, hn::Set(d, 0.5)), sum);
  return hn::Mul(hn::Mul(x, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(k, half)));
}

// ---- exp, expm1 ----

// x + low = k ln 2 + r + (an error kept in rest), e^r = 1 + r + square + rest; square is the first
// half of r^2/2 and exact. Needs |low| <= 2^-43.
template <class D, class V>
HWY_INLINE void ExpParts(D d, V x, V low, V& k, V& r, V& square, V& rest) {
  V sum;
  k = RoundToInteger(d, hn::Mul(x, hn::Set(d, cf::kInvLn2)), sum);
  const V first = hn::Sub(x, hn::Mul(k, hn::Set(d, cf::kLn2_1)));
  const V second = hn::Sub(hn::Mul(k, hn::Set(d, cf::kLn2_2)), low);
  r = hn::Sub(first, second);
  const V error = hn::Sub(hn::Sub(first, r), second);
  const V half = hn::Set(d, 0.5), rh = Head(d, r);
  square = hn::Mul(half, hn::Mul(rh, rh));
  const V square_tail = hn::Mul(half, hn::Mul(hn::Sub(r, rh), hn::Add(r, rh)));
  const V cubic = hn::Mul(hn::Mul(hn::Mul(r, r), r), Polynomial(d, r, cf::kExp));
  rest = hn::Add(cubic, hn::Add(square_tail, hn::Add(error, hn::Mul(error, r))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -760.0)), hn::Set(d, 720.0));
  V k, r, square, rest, error;
  ExpParts(d, bounded, hn::Zero(d), k, r, square, rest);
  const V one_plus_r = FastTwoSum(hn::Set(d, 1.0), r, error);
  const V tail = hn::Add(error, hn::Add(square, rest));
  return NanUnlessOrdered(d, x, Scale(d, hn::Add(one_plus_r, tail), k));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Expm1(D d, V x) {
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -40.0)), hn::Set(d, 720.0));
  V k, r, square, rest, error, error2, error3;
  ExpParts(d, bounded, hn::Zero(d), k, r, square, rest);
  // 2^k ((1 + r - 2^-k) + square + rest): all but the rest is summed exactly.
  const V minus_unit = hn::Neg(PowerOfTwo(d, hn::Neg(hn::Min(k, hn::Set(d, 1000.0)))));
  const V one_plus_r = FastTwoSum(hn::Set(d, 1.0), r, error);
  V sum = TwoSum(one_plus_r, minus_unit, error2);
  sum = TwoSum(sum, square, error3);
  const V tail = hn::Add(hn::Add(error, hn::Add(error2, error3)), rest);
  return NanUnlessOrdered(d, x, hn::CopySign(Scale(d, hn::Add(sum, tail), k), x));
}

// ---- log, log1p ----

// Positive normal x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt 2.
template <class D, class V>
HWY_INLINE void LogParts(D d, V x, V& k, V& f) {
  const hn::RebindToUnsigned<D> du;
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  const auto shifted = hn::Add(hn::BitCast(du, x), hn::Set(du, 0x3ff0000000000000u - kSqrtHalf));
  const auto fraction = hn::And(shifted, hn::Set(du, 0x000fffffffffffffu));
  f = hn::Sub(hn::BitCast(d, hn::Add(fraction, hn::Set(du, kSqrtHalf))), hn::Set(d, 1.0));
  // The exponent as a double: its bits under those of 2^52.
  const auto biased = hn::Or(hn::ShiftRight<52>(shifted), hn::Set(du, 0x4330000000000000u));
  k = hn::Sub(hn::BitCast(d, biased), hn::Set(d, 0x1p52 + 1023));
}

// k ln 2 + log(1 + f) + low.
template <class D, class V>
HWY_INLINE V LogSum(D d, V k, V f, V low) {
  // log(1+f) = f - f^2/2 + s (f^2/2 + R), s = f/(2+f); f^2/2 as an exact head and a tail.
  const V half = hn::Set(d, 0.5);
  const V fh = Head(d, f);
  const V square_head = hn::Mul(half, hn::Mul(fh, fh));
  const V square_tail = hn::Mul(half, hn::Mul(hn::Sub(f, fh), hn::Add(f, fh)));
  const V s = hn::Div(f, hn::Add(hn::Set(d, 2.0), f));
  const V z = hn::Mul(s, s);
  const V series = hn::Mul(z, Polynomial(d, z, cf::kLog));
  const V rest = hn::Mul(s, hn::Add(hn::Add(square_head, square_tail), series));
  V error, error2;
  const V sum = FastTwoSum(hn::Mul(k, hn::Set(d, cf::kLn2_1)), f, error);
  const V sum2 = FastTwoSum(sum, hn::Neg(square_head), error2);
  const V small = hn::Add(hn::Mul(k, hn::Set(d, cf::kLn2_2)), hn::Sub(rest, square_tail));
  return hn::Add(sum2, hn::Add(hn::Add(error, error2), hn::Add(small, low)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V LogPositive(D d, V x) {
  V k, f;
  LogParts(d, x, k, f);
  return LogSum(d, k, f, hn::Zero(d));
}

template <class D, class V>
HWY_INLINE V LogSpecials(D d, V x, V result) {
  const V inf = Infinity(d);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(inf), result);
  result = hn::IfThenElse(hn::Eq(x, inf), inf, result);
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), result, QuietNan(d));  // negative or NaN
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V x) {
  const auto subnormal = hn::Lt(x, hn::Set(d, 0x1p-1022));
  V k, f;
  LogParts(d, hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p54)), x), k, f);
  k = hn::IfThenElse(subnormal, hn::Sub(k, hn::Set(d, 54.0)), k);
  return LogSpecials(d, x, LogSum(d, k, f, hn::Zero(d)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1p(D d, V x) {
  const V one = hn::Set(d, 1.0);
  V error, k, f;
  const V u = TwoSum(one, x, error);
  LogParts(d, u, k, f);
  // 1 + x = 2^k (1 + f + low), and log(1 + f + low) = log(1 + f) + low / (1 + f) to first order.
  V low;
  const V bounded = hn::Min(k, hn::Set(d, 1000.0));
  f = TwoSum(f, hn::Mul(error, PowerOfTwo(d, hn::Neg(bounded))), low);
  const V inverse = hn::Sub(one, hn::Mul(f, hn::Sub(one, hn::Mul(f, hn::Sub(one, f)))));
  const V result = LogSum(d, k, f, hn::Mul(low, inverse));
  const auto tiny = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-54));
  return hn::IfThenElse(tiny, x, LogSpecials(d, u, hn::IfThenElse(hn::Eq(x, x), result, x)));
}

// ---- sin, cos ----

// From |high + low| <= pi/4: sin and cos without the quadrant.
template <class D, class V>
HWY_INLINE void SinCosKernel(D d, V high, V low, V& s, V& c) {
  const V half = hn::Set(d, 0.5), one = hn::Set(d, 1.0);
  const V z = hn::Mul(high, high);
  const V cubic = hn::Mul(hn::Mul(high, z), Polynomial(d, z, cf::kSin));
  s = hn::Add(high, hn::Add(cubic, hn::Mul(low, hn::Sub(one, hn::Mul(half, z)))));

  const V hh = Head(d, high);
  const V square_head = hn::Mul(half, hn::Mul(hh, hh));
  const V square_tail = hn::Mul(half, hn::Mul(hn::Sub(high, hh), hn::Add(high, hh)));
  V error;
  const V base = FastTwoSum(one, hn::Neg(square_head), error);
  const V quartic = hn::Mul(hn::Mul(z, z), Polynomial(d, z, cf::kCos));
  c = hn::Add(base, hn::Add(hn::Sub(error, square_tail), hn::Sub(quartic, hn::Mul(high, low))));
}

// Turns (s, c) by the quadrant found in the low two bits of `sum`.
template <class D, class V>
HWY_INLINE void Turn(D d, V sum, V& s, V& c) {
  const hn::RebindToUnsigned<D> du;
  const auto q = hn::BitCast(du, sum);
  const auto one = hn::Set(du, 1);
  const auto swap =
      hn::MaskFromVec(hn::BitCast(d, hn::Sub(hn::Zero(du), hn::And(q, one))));  // all ones when odd
  const auto sign = hn::Set(du, 2);
  const V flip_s = hn::BitCast(d, hn::ShiftLeft<62>(hn::And(q, sign)));
  const V flip_c = hn::BitCast(d, hn::ShiftLeft<62>(hn::And(hn::Add(q, one), sign)));
  const V turned_s = hn::IfThenElse(swap, c, s);
  const V turned_c = hn::IfThenElse(swap, s, c);
  s = hn::Xor(turned_s, flip_s);
  c = hn::Xor(turned_c, flip_c);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void SinCos(D d, V x, V& s, V& c) {
  const V limit = hn::Set(d, 0x1p20);
  const auto large = hn::Not(hn::Lt(hn::Abs(x), limit));  // also infinities and NaN
  const V small_x = hn::IfThenElse(large, hn::Zero(d), x);
  V sum, error, error2;
  const V n = RoundToInteger(d, hn::Mul(small_x, hn::Set(d, cf::kInvHalfPi)), sum);
  const V first = hn::Sub(small_x, hn::Mul(n, hn::Set(d, cf::kHalfPi_1)));
  const V second = TwoSum(first, hn::Neg(hn::Mul(n, hn::Set(d, cf::kHalfPi_2))), error);
  const V third = TwoSum(second, hn::Neg(hn::Mul(n, hn::Set(d, cf::kHalfPi_3))), error2);
  V low;
  V high = FastTwoSum(third, hn::Sub(hn::Add(error, error2), hn::Mul(n, hn::Set(d, cf::kHalfPi_4))),
                      low);

  if (HWY_UNLIKELY(!hn::AllFalse(d, large))) {
    HWY_ALIGN double xs[hn::MaxLanes(D())], highs[hn::MaxLanes(D())];
    HWY_ALIGN double lows[hn::MaxLanes(D())], sums[hn::MaxLanes(D())];
    hn::Store(x, d, xs);
    hn::Store(high, d, highs);
    hn::Store(low, d, lows);
    hn::Store(sum, d, sums);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
      const double size = xs[i] < 0 ? -xs[i] : xs[i];
      if (size >= 0x1p20 && size <= 0x1.fffffffffffffp1023)
        sums[i] = kRounder + detail::reduce_large_angle(xs[i], highs[i], lows[i]);
    }
    high = hn::Load(d, highs);
    low = hn::Load(d, lows);
    sum = hn::Load(d, sums);
  }

  SinCosKernel(d, high, low, s, c);
  Turn(d, sum, s, c);
  s = hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-27)), x, s);  // keeps the sign of zero
  const auto finite = hn::Lt(hn::Abs(x), Infinity(d));
  s = hn::IfThenElse(finite, s, QuietNan(d));
  c = hn::IfThenElse(finite, c, QuietNan(d));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sin(D d, V x) {
  V s, c;
  SinCos(d, x, s, c);
  return s;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Cos(D d, V x) {
  V s, c;
  SinCos(d, x, s, c);
  return c;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void SinCosTwoPi(D d, V u, V& s, V& c) {
  V sum;
  const V four_u = hn::Mul(u, hn::Set(d, 4.0));
  const V t = hn::Sub(four_u, RoundToInteger(d, four_u, sum));
  const V th = Head(d, t);
  const V z = hn::Mul(t, t);
  const V angle_head = hn::Mul(th, hn::Set(d, cf::kQuarter_1));
  const V angle_tail = hn::Add(hn::Mul(th, hn::Set(d, cf::kQuarter_2)),
                               hn::Mul(hn::Sub(t, th), hn::Set(d, cf::kHalfPiHi)));
  const V cubic = hn::Mul(hn::Mul(t, z), Polynomial(d, z, cf::kSinTurn));
  s = hn::Add(angle_head, hn::Add(angle_tail, cubic));

  const V zh = Head(d, z);
  V error;
  const V base =
      FastTwoSum(hn::Set(d, 1.0), hn::Neg(hn::Mul(zh, hn::Set(d, cf::kQuarterSq_1))), error);
  const V tail = hn::Add(hn::Mul(zh, hn::Set(d, cf::kQuarterSq_2)),
                         hn::Mul(hn::Sub(z, zh), hn::Set(d, cf::kQuarterSq_1)));
  const V quartic = hn::Mul(hn::Mul(z, z), Polynomial(d, z, cf::kCosTurn));
  c = hn::Add(base, hn::Add(error, hn::Sub(quartic, tail)));
  Turn(d, sum, s, c);
}

}  // namespace discreet::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
