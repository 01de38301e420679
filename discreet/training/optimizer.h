#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/config/config.h"
#include "discreet/layout/gradients.h"

namespace discreet::training {

// Updates parameters from released gradients. This is post-processing and costs no privacy.
// Learning rates:
//   constant  rate
//   cosine    rate * (1 + cos(pi t / steps)) / 2
//   linear    rate * (1 - t / steps)

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double rate = 0.1;    // > 0, finite
  double momentum = 0;  // SGD, in [0, 1): v = momentum v + g; w -= rate v
  double beta1 = 0.9;   // Adam
  double beta2 = 0.999;
  double floor = 1e-8;  // Adam: smallest square root of the second moment, > 0
  // Adam: the root is at least the standard deviation of the noise, too. Below it, a second moment
  // without its noise is an estimate of nothing, and a small one would blow the step up.
  bool floor_is_noise = false;
  double weight_decay = 0;  // >= 0, decoupled: w -= rate * weight_decay * w
  RateSchedule schedule = RateSchedule::kConstant;
  std::uint64_t steps = 0;  // of the run; required by cosine and linear
  // Averaging of iterates: average = d average + (1 - d) w, d in [0, 1); empty: no averaging.
  std::optional<double> average = {};
};

// The state of an optimizer for tensors of given sizes. Arithmetic is in binary64, parameters are
// binary32; every coordinate depends only on its own history.
class Optimizer {
 public:
  // Throws kInvalidDpConfig, naming the option, if one is out of range.
  Optimizer(const OptimizerOptions& options, const ModelLayout& layout);

  // One step. gradient: as released. noise_variance: of each part's noise on the released gradient,
  // per private tensor of the layout. The noise inflates Adam's second moment, so Adam subtracts
  // the bias-corrected average of this variance, down to floor^2 or that average. parameters: one
  // span per tensor; tensors that are not private do not change. threads: does not affect results.
  // Throws kInvalidInput for other sizes.
  void step(const GradientSum& gradient, std::span<const double> noise_variance,
            std::span<const std::span<float>> parameters, int threads = 1);

  std::uint64_t steps() const noexcept { return t_; }
  double rate() const;  // of the next step
  // The averaged parameters of tensor i; empty without averaging or before the first step.
  std::span<const float> average(std::size_t i) const;

  // Deterministic CBOR, restored bit for bit; kMalformed for other bytes, the state unchanged.
  Bytes save() const;
  void restore(ByteView bytes);

 private:
  // Updates the moments of coordinates [begin, end) of tensor i, then the coordinates.
  void descend(std::size_t i, std::size_t begin, std::size_t end, std::span<const double> g,
               double rate, std::span<float> w);
  void descend_adam(std::size_t i, std::size_t begin, std::size_t end, std::span<const double> g,
                    double rate, std::span<float> w);
  OptimizerOptions options_;
  GradientSum first_, second_;    // moments
  std::vector<double> variance_;  // average of the noise variance per tensor
  std::vector<std::vector<float>> average_;
  std::uint64_t t_ = 0;
};

}  // namespace discreet::training
