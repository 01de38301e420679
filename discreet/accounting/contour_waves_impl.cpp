#include "discreet/accounting/contour_waves_impl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/accounting/contour_waves_impl.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace discreet::accounting::contour::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most eight lanes, so that eight is a whole number of vectors on every target.
using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = 8;

// Eight running sums, as 8/Lanes vectors.
class Lanes {
 public:
  HWY_INLINE void clear() {
    for (std::size_t lane = 0; lane < kLanes; ++lane) total_[lane] = 0;
  }
  HWY_INLINE void add(const double* block) {
    const D d;
    for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(d)) {
      V sum = hn::Load(d, block + lane);
      for (std::size_t row = kLanes; row < kWaveBlock; row += kLanes) {
        sum = hn::Add(sum, hn::Load(d, block + row + lane));
      }
      hn::Store(hn::Add(hn::Load(d, total_ + lane), sum), d, total_ + lane);
    }
  }
  HWY_INLINE double sum() const {
    double result = 0;
    for (const double lane : total_) result += lane;
    return result;
  }

 private:
  HWY_ALIGN double total_[kLanes];
};

double BlockedSum(const double* values, std::size_t padded) {
  const D d;
  HWY_ALIGN double block[kWaveBlock];
  Lanes lanes;
  lanes.clear();
  for (std::size_t begin = 0; begin < padded; begin += kWaveBlock) {
    for (std::size_t i = 0; i < kWaveBlock; i += hn::Lanes(d)) {
      hn::Store(hn::LoadU(d, values + begin + i), d, block + i);
    }
    lanes.add(block);
  }
  return lanes.sum();
}

template <class Change>
HWY_INLINE WaveSum ChangeAndSum(double* re, double* im, std::size_t padded, Change&& change) {
  const D d;
  HWY_ALIGN double block_re[kWaveBlock];
  HWY_ALIGN double block_im[kWaveBlock];
  Lanes lanes_re, lanes_im;
  lanes_re.clear();
  lanes_im.clear();
  for (std::size_t begin = 0; begin < padded; begin += kWaveBlock) {
    for (std::size_t i = 0; i < kWaveBlock; i += hn::Lanes(d)) {
      V a = hn::LoadU(d, re + begin + i);
      V b = hn::LoadU(d, im + begin + i);
      change(begin + i, a, b);
      hn::StoreU(a, d, re + begin + i);
      hn::StoreU(b, d, im + begin + i);
      hn::Store(a, d, block_re + i);
      hn::Store(b, d, block_im + i);
    }
    lanes_re.add(block_re);
    lanes_im.add(block_im);
  }
  return {lanes_re.sum(), lanes_im.sum()};
}

WaveSum TurnAndSum(double* re, double* im, const double* turn_re, const double* turn_im,
                   std::size_t padded) {
  const D d;
  return ChangeAndSum(re, im, padded, [&](std::size_t i, V& a, V& b) HWY_ATTR {
    const V c = hn::LoadU(d, turn_re + i);
    const V s = hn::LoadU(d, turn_im + i);
    const V turned = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
    b = hn::Add(hn::Mul(a, s), hn::Mul(b, c));
    a = turned;
  });
}

WaveSum WeighAndSum(double* re, double* im, const double* weight, std::size_t padded) {
  const D d;
  return ChangeAndSum(re, im, padded, [&](std::size_t i, V& a, V& b) HWY_ATTR {
    const V w = hn::LoadU(d, weight + i);
    a = hn::Mul(a, w);
    b = hn::Mul(b, w);
  });
}

}  // namespace discreet::accounting::contour::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::accounting::contour {

HWY_EXPORT(BlockedSum);
HWY_EXPORT(TurnAndSum);
HWY_EXPORT(WeighAndSum);

double blocked_sum(const double* values, std::size_t padded) noexcept {
  return HWY_DYNAMIC_DISPATCH(BlockedSum)(values, padded);
}

WaveSum turn_and_sum(double* re, double* im, const double* turn_re, const double* turn_im,
                     std::size_t padded) noexcept {
  return HWY_DYNAMIC_DISPATCH(TurnAndSum)(re, im, turn_re, turn_im, padded);
}

WaveSum weigh_and_sum(double* re, double* im, const double* weight, std::size_t padded) noexcept {
  return HWY_DYNAMIC_DISPATCH(WeighAndSum)(re, im, weight, padded);
}

}  // namespace discreet::accounting::contour
#endif  // HWY_ONCE
