#include "discreet/accounting/contour/contour_waves_impl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/accounting/contour/contour_waves_impl.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace discreet::accounting::contour::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most eight lanes, so that eight is a whole number of vectors on every target.
using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = 8;

double BlockedSum(const double* values, std::size_t padded) {
  const D d;
  HWY_ALIGN double total[kLanes] = {};
  for (std::size_t begin = 0; begin < padded; begin += kWaveBlock) {
    for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(d)) {
      V sum = hn::LoadU(d, values + begin + lane);
      for (std::size_t row = kLanes; row < kWaveBlock; row += kLanes) {
        sum = hn::Add(sum, hn::LoadU(d, values + begin + row + lane));
      }
      hn::Store(hn::Add(hn::Load(d, total + lane), sum), d, total + lane);
    }
  }
  double result = 0;
  for (const double lane : total) result += lane;
  return result;
}

// change(i, a, b) gives the values at i.., which are stored and summed as by BlockedSum.
template <class Change>
HWY_INLINE WaveSum ChangeAndSum(double* re, double* im, std::size_t padded, Change&& change) {
  const D d;
  HWY_ALIGN double total_re[kLanes] = {};
  HWY_ALIGN double total_im[kLanes] = {};
  for (std::size_t begin = 0; begin < padded; begin += kWaveBlock) {
    for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(d)) {
      V sum_re = hn::Zero(d);
      V sum_im = hn::Zero(d);
      for (std::size_t row = 0; row < kWaveBlock; row += kLanes) {
        const std::size_t i = begin + row + lane;
        V a, b;
        change(i, a, b);
        hn::StoreU(a, d, re + i);
        hn::StoreU(b, d, im + i);
        sum_re = row == 0 ? a : hn::Add(sum_re, a);
        sum_im = row == 0 ? b : hn::Add(sum_im, b);
      }
      hn::Store(hn::Add(hn::Load(d, total_re + lane), sum_re), d, total_re + lane);
      hn::Store(hn::Add(hn::Load(d, total_im + lane), sum_im), d, total_im + lane);
    }
  }
  WaveSum result{0, 0};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    result.re += total_re[lane];
    result.im += total_im[lane];
  }
  return result;
}

WaveSum TurnAndSum(Waves<const double> from, Waves<const double> turn, Waves<double> to,
                   std::size_t padded) {
  const D d;
  return ChangeAndSum(to.re, to.im, padded, [&](std::size_t i, V& a, V& b) HWY_ATTR {
    const V re = hn::LoadU(d, from.re + i);
    const V im = hn::LoadU(d, from.im + i);
    const V c = hn::LoadU(d, turn.re + i);
    const V s = hn::LoadU(d, turn.im + i);
    a = hn::Sub(hn::Mul(re, c), hn::Mul(im, s));
    b = hn::Add(hn::Mul(re, s), hn::Mul(im, c));
  });
}

WaveSum WeighAndSum(Waves<double> waves, const double* weight, std::size_t padded) {
  const D d;
  return ChangeAndSum(waves.re, waves.im, padded, [&](std::size_t i, V& a, V& b) HWY_ATTR {
    const V w = hn::LoadU(d, weight + i);
    a = hn::Mul(hn::LoadU(d, waves.re + i), w);
    b = hn::Mul(hn::LoadU(d, waves.im + i), w);
  });
}

double MissingSum(const double* weights, const double* half_lengths, std::size_t size, double t) {
  const D d;
  HWY_ALIGN double total[kLanes] = {};
  const V one = hn::Set(d, 1);
  for (std::size_t i = 0; i < size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(d)) {
      const V x = hn::Mul(hn::LoadU(d, half_lengths + i + lane), hn::Set(d, t));
      const V square = hn::Mul(x, x);
      const V near =
          hn::Mul(square, hn::Sub(hn::Set(d, 1.0 / 6), hn::Mul(square, hn::Set(d, 1.0 / 120))));
      const V far = hn::Max(hn::Set(d, 0.78276), hn::Sub(one, hn::Div(one, x)));
      const V missing = hn::IfThenElse(hn::Le(x, hn::Set(d, 2.6)), near, far);
      const V term = hn::Mul(hn::LoadU(d, weights + i + lane), missing);
      hn::Store(hn::Add(hn::Load(d, total + lane), term), d, total + lane);
    }
  }
  double result = 0;
  for (const double lane : total) result += lane;
  return result;
}

}  // namespace discreet::accounting::contour::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::accounting::contour {

HWY_EXPORT(BlockedSum);
HWY_EXPORT(MissingSum);
HWY_EXPORT(TurnAndSum);
HWY_EXPORT(WeighAndSum);

double blocked_sum(const double* values, std::size_t padded) noexcept {
  return HWY_DYNAMIC_DISPATCH(BlockedSum)(values, padded);
}

WaveSum turn_and_sum(Waves<const double> from, Waves<const double> turn, Waves<double> to,
                     std::size_t padded) noexcept {
  return HWY_DYNAMIC_DISPATCH(TurnAndSum)(from, turn, to, padded);
}

WaveSum weigh_and_sum(Waves<double> waves, const double* weight, std::size_t padded) noexcept {
  return HWY_DYNAMIC_DISPATCH(WeighAndSum)(waves, weight, padded);
}

double missing_sum(const double* weights, const double* half_lengths, std::size_t size,
                   double t) noexcept {
  return HWY_DYNAMIC_DISPATCH(MissingSum)(weights, half_lengths, size, t);
}

}  // namespace discreet::accounting::contour
#endif  // HWY_ONCE
