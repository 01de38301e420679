// atan2, erfc, log erfc and the normal distribution function as Highway templates; see
// elementary-inl.h for the rules and elementary.h for what they compute.
// Proof: elementary.md
#include "discreet/numerics/elementary-inl.h"

#if defined(DISCREET_NUMERICS_SPECIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DISCREET_NUMERICS_SPECIAL_INL_H_
#undef DISCREET_NUMERICS_SPECIAL_INL_H_
#else
#define DISCREET_NUMERICS_SPECIAL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace discreet::numerics::HWY_NAMESPACE {

// ---- atan2 ----

// high + low = a + c b, exactly up to 2^-104 relative to the larger term; c has few bits.
template <class D, class V>
HWY_INLINE V AddMultiple(D d, V a, V c, V b, V& low) {
  const V bh = Head(d, b);
  V error, error2;
  const V sum = TwoSum(a, hn::Mul(c, bh), error);
  const V sum2 = TwoSum(sum, hn::Mul(c, hn::Sub(b, bh)), error2);
  return FastTwoSum(sum2, hn::Add(error, error2), low);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Atan2(D d, V y, V x) {
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0), inf = Infinity(d);
  const V ay = hn::Abs(y), ax = hn::Abs(x);
  const auto steep = hn::Gt(ay, ax);
  V a = hn::IfThenElse(steep, ax, ay);
  V b = hn::IfThenElse(steep, ay, ax);
  const V ratio = hn::Div(a, b);
  // inf/inf is the diagonal; finite/inf and 0/0 are the axis.
  const auto both_infinite = hn::Eq(a, inf);
  const auto degenerate = hn::Or(hn::Eq(b, inf), hn::Eq(b, zero));
  a = hn::IfThenElse(both_infinite, one, hn::IfThenElse(degenerate, zero, a));
  b = hn::IfThenElse(degenerate, one, b);

  // Scale b to [1, 2). What `a` loses by underflow is far below half an ulp of pi/2 or pi, and it
  // is not used where the ratio itself is the result.
  const auto small = hn::Lt(b, hn::Set(d, 0x1p-900));
  const V up = hn::IfThenElse(small, hn::Set(d, 0x1p200), one);
  a = hn::Mul(a, up);
  b = hn::Mul(b, up);
  const V exponent = hn::And(b, inf);
  const V inverse = hn::Div(hn::Set(d, 0.5), exponent);
  const V two = hn::Set(d, 2.0);
  a = hn::Mul(hn::Mul(a, inverse), two);
  b = hn::Mul(hn::Mul(b, inverse), two);

  // atan(a/b) = atan(c) + atan((a - c b) / (b + c a)) with c = j/16 nearest to a/b.
  V sum;
  const V j = RoundToInteger(d, hn::Mul(hn::Div(a, b), hn::Set(d, 16.0)), sum);
  const V c = hn::Mul(j, hn::Set(d, 1.0 / 16));
  V top_low, bottom_low, product_low;
  const V top = AddMultiple(d, a, hn::Neg(c), b, top_low);
  const V bottom = AddMultiple(d, b, c, a, bottom_low);
  const V u = hn::Div(top, bottom);
  const V product = TwoProduct(d, u, bottom, product_low);
  const V residual = hn::Sub(hn::Add(hn::Sub(hn::Sub(top, product), product_low), top_low),
                             hn::Mul(u, bottom_low));
  const V u_low = hn::Div(residual, bottom);
  const V z = hn::Mul(u, u);
  const V cubic = hn::Mul(hn::Mul(u, z), Polynomial(d, z, cf::kAtan));

  const hn::RebindToSigned<D> di;
  const auto index = hn::And(hn::BitCast(di, sum), hn::Set(di, 31));
  const auto bounded = hn::Min(index, hn::Set(di, 16));  // NaN lanes
  V low;
  V angle = FastTwoSum(hn::GatherIndex(d, cf::kAtanHi, bounded), u, low);
  low = hn::Add(low, hn::Add(hn::GatherIndex(d, cf::kAtanLo, bounded), hn::Add(u_low, cubic)));

  // (angle, low) -> pi/2 - it when steep, then pi - it when x < 0.
  V error;
  const V from_half = TwoSum(hn::Set(d, cf::kHalfPiHi), hn::Neg(angle), error);
  low = hn::IfThenElse(steep, hn::Add(error, hn::Sub(hn::Set(d, cf::kHalfPiLo), low)), low);
  angle = hn::IfThenElse(steep, from_half, angle);
  const auto left = hn::Lt(hn::CopySign(one, x), zero);
  const V from_pi = TwoSum(hn::Set(d, cf::kPiHi), hn::Neg(angle), error);
  low = hn::IfThenElse(left, hn::Add(error, hn::Sub(hn::Set(d, cf::kPiLo), low)), low);
  angle = hn::IfThenElse(left, from_pi, angle);

  const auto flat = hn::And(hn::Lt(ratio, hn::Set(d, 0x1p-30)), hn::Not(hn::Or(steep, left)));
  const V result = hn::IfThenElse(flat, ratio, hn::Add(angle, low));
  return hn::IfThenElse(hn::And(hn::Eq(x, x), hn::Eq(y, y)), hn::CopySign(result, y), QuietNan(d));
}

// ---- erfc and relatives ----

// erf(x + low) as high + tail, for |x| <= 1/2.
template <class D, class V>
HWY_INLINE V ErfSmall(D d, V x, V low, V& tail) {
  const V xh = Head(d, x);
  const V z = hn::Mul(x, x);
  tail = hn::Add(hn::Mul(xh, hn::Set(d, cf::kTwoOverSqrtPi_2)),
                 hn::Mul(hn::Add(hn::Sub(x, xh), low),
                         hn::Set(d, cf::kTwoOverSqrtPi_1 + cf::kTwoOverSqrtPi_2)));
  // The derivative's change over `low` is part of the cubic only to second order: e^(-x^2) - 1.
  tail = hn::Sub(tail, hn::Mul(hn::Mul(low, z), hn::Set(d, cf::kTwoOverSqrtPi_1)));
  tail = hn::Add(tail, hn::Mul(hn::Mul(x, z), Polynomial(d, z, cf::kErf)));
  return hn::Mul(xh, hn::Set(d, cf::kTwoOverSqrtPi_1));
}

// erfcx(x + low) = e^(x^2) erfc(x) as high + tail, for 15/32 <= x < 32.
template <class D, class V>
HWY_INLINE V Erfcx(D d, V x, V low, V& tail) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, x);
  constexpr std::uint64_t kFirst = 0x3fde000000000000u >> 49;  // of 15/32
  auto row = hn::BitCast(di, hn::Sub(hn::ShiftRight<49>(bits), hn::Set(du, kFirst)));
  row = hn::Min(hn::Max(row, hn::Zero(di)), hn::Set(di, 48));  // lanes that are not ours
  // row * 13 without a 64-bit multiply, which older targets lack.
  static_assert(cf::kErfcxTerms == 13);
  const auto start = hn::Add(row, hn::Add(hn::ShiftLeft<2>(row), hn::ShiftLeft<3>(row)));
  const V middle =
      hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(du, ~((std::uint64_t{1} << 49) - 1))),
                            hn::Set(du, std::uint64_t{1} << 48)));
  const V t = hn::Add(hn::Sub(x, middle), low);
  V sum = hn::GatherIndex(d, cf::kErfcx + 12, start);
  for (int i = 11; i >= 2; --i)
    sum = hn::Add(hn::Mul(sum, t), hn::GatherIndex(d, cf::kErfcx + i, start));
  tail = hn::Add(hn::Mul(sum, t), hn::GatherIndex(d, cf::kErfcx + 1, start));
  return hn::GatherIndex(d, cf::kErfcx, start);
}

// e^(-square - square_low) * erfcx(x + low) * factor, for x >= 15/32 and factor a power of two.
template <class D, class V>
HWY_INLINE V ErfcOuter(D d, V x, V low, V square, V square_low, double factor) {
  // Both as unevaluated sums, multiplied, then scaled once.
  V k, r, square_r, rest, e_low, cx_tail, p_low;
  ExpParts(d, hn::Neg(hn::Min(square, hn::Set(d, 800.0))), hn::Neg(square_low), k, r, square_r,
           rest);
  V e = FastTwoSum(hn::Set(d, 1.0), r, e_low);
  e = FastTwoSum(e, hn::Add(e_low, hn::Add(square_r, rest)), e_low);
  V cx = Erfcx(d, x, low, cx_tail);
  cx = FastTwoSum(cx, cx_tail, cx_tail);
  const V product = TwoProduct(d, e, cx, p_low);
  const V value =
      hn::Add(product, hn::Add(p_low, hn::Add(hn::Mul(e, cx_tail), hn::Mul(e_low, cx))));
  // erfcx shrinks with x (erfcx(28) > 2^-6); this keeps Scale's operand near 1.
  return Scale(d, hn::Mul(value, hn::Set(d, 8 * factor)), hn::Sub(k, hn::Set(d, 3.0)));
}

// factor * erfc(x + low), where square + square_low = (x + low)^2 and factor is a power of two.
// Parts that no lane needs are skipped, which does not change the others.
template <class D, class V>
HWY_INLINE V ErfcSum(D d, V x, V low, V square, V square_low, double factor) {
  const V seam = hn::Set(d, 15.0 / 32);  // erfc is still above 1/2
  const V ax = hn::Abs(x);
  const auto central = hn::Lt(ax, seam);
  V result = hn::Zero(d);
  if (!hn::AllFalse(d, central)) {
    V erf_tail, error;
    const V erf = ErfSmall(d, hn::IfThenElseZero(central, x), low, erf_tail);
    const V near = FastTwoSum(hn::Set(d, 1.0), hn::Neg(erf), error);
    result = hn::Mul(hn::Set(d, factor), hn::Add(near, hn::Sub(error, erf_tail)));
  }
  if (!hn::AllTrue(d, central)) {
    const auto positive = hn::Gt(x, hn::Zero(d));
    const V signed_low = hn::IfThenElse(positive, low, hn::Neg(low));
    const V value = ErfcOuter(d, hn::Max(ax, seam), signed_low, square, square_low, factor);
    const V outer = hn::IfThenElse(positive, value, hn::Sub(hn::Set(d, 2 * factor), value));
    result = hn::IfThenElse(central, result, outer);
  }
  return result;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erfc(D d, V x) {
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -28.0)), hn::Set(d, 28.0));
  V square_low;
  const V square = TwoProduct(d, bounded, bounded, square_low);
  return NanUnlessOrdered(d, x, ErfcSum(d, bounded, hn::Zero(d), square, square_low, 1.0));
}

// Phi(x) = erfc(-x / sqrt 2) / 2, with -x / sqrt 2 carried as an unevaluated sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NormalCdf(D d, V x) {
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -39.0)), hn::Set(d, 39.0));
  V low, square_low;
  V z = TwoProduct(d, hn::Neg(bounded), hn::Set(d, cf::kInvSqrt2Hi), low);
  low = hn::Sub(low, hn::Mul(bounded, hn::Set(d, cf::kInvSqrt2Lo)));
  z = FastTwoSum(z, low, low);
  const V half = hn::Set(d, 0.5);
  const V square = TwoProduct(d, bounded, hn::Mul(half, bounded), square_low);
  return NanUnlessOrdered(d, x, ErfcSum(d, z, low, square, square_low, 0.5));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V LogErfc(D d, V x) {
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0), half = hn::Set(d, 0.5);
  const V ln2_1 = hn::Set(d, cf::kLn2_1), ln2_2 = hn::Set(d, cf::kLn2_2);

  const V most = hn::Set(d, 0x1.fffffffffffffp511);  // its square is finite
  const auto central = hn::Lt(hn::Abs(x), half);
  const auto negative = hn::Le(x, hn::Neg(half));
  const auto far = hn::Gt(x, hn::Set(d, 31.0));
  V result = zero;
  if (!hn::AllFalse(d, central)) {  // log1p(-erf x)
    V erf_tail;
    const V erf = ErfSmall(d, hn::IfThenElseZero(central, x), zero, erf_tail);
    result = Log1p(d, hn::Neg(hn::Add(erf, erf_tail)));
  }
  if (!hn::AllFalse(d, negative)) {  // log(2 - w) = log 2 + log1p(-w/2), w = erfc(-x)
    const V other = Erfc(d, hn::Max(hn::Neg(x), half));
    const V left = hn::Add(ln2_1, hn::Add(ln2_2, Log1p(d, hn::Neg(hn::Mul(half, other)))));
    result = hn::IfThenElse(negative, left, result);
  }
  const auto right = hn::Ge(x, half);
  if (!hn::AllFalse(d, right)) {  // -x^2 + log erfcx(x)
    const V bx = hn::Min(hn::Max(x, half), most);
    V square_low, log_cx = zero;
    const V square = TwoProduct(d, bx, bx, square_low);
    if (!hn::AllTrue(d, far)) {
      V cx_tail;
      const V cx = Erfcx(d, hn::Min(bx, hn::Set(d, 31.5)), zero, cx_tail);
      log_cx = LogPositive(d, hn::Add(cx, cx_tail));
    }
    if (!hn::AllFalse(d, far)) {  // erfcx(x) = (1 - 1/(2x^2) + 3/(4x^4) - ...) / (x sqrt pi)
      const V w = hn::Div(one, hn::Mul(hn::Set(d, 2.0), square));
      static constexpr double kSeries[] = {-1, 3, -15, 105, -945, 10395, -135135};
      const V series = Log1p(d, hn::Mul(w, Polynomial(d, w, kSeries)));
      const V log_far = hn::Sub(series, hn::Add(LogPositive(d, bx), hn::Set(d, cf::kLogSqrtPiHi)));
      log_cx = hn::IfThenElse(far, log_far, log_cx);
    }
    result = hn::IfThenElse(right, hn::Sub(hn::Sub(log_cx, square_low), square), result);
  }
  result = hn::IfThenElse(hn::Gt(x, most), hn::Neg(Infinity(d)), result);
  return NanUnlessOrdered(d, x, hn::IfThenElse(hn::Eq(x, zero), hn::Neg(x), result));
}

}  // namespace discreet::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
