#pragma once

#include <span>
#include <utility>
#include <vector>

namespace discreet::mechanism {

// Numbers that may control the mechanism. Whatever determines bounds, noise or allocation is
// visible in the releases, so it must not be a raw statistic of private records. The two ways to
// create such an object state where the numbers come from; there is no third way.
template <class What>
class Steering {
 public:
  // The numbers are independent of private records: declared, or measured on public data.
  static Steering from_public(std::vector<double> values) {
    return Steering(std::move(values), false);
  }
  // The numbers are functions of values released with noise that the accountant has composed.
  static Steering from_noised_release(std::vector<double> values) {
    return Steering(std::move(values), true);
  }
  // True if they depend on released values, which not every composition allows.
  bool is_noised() const noexcept { return noised_; }
  std::span<const double> values() const noexcept { return values_; }

 private:
  Steering(std::vector<double> values, bool noised) : values_(std::move(values)), noised_(noised) {}
  std::vector<double> values_;
  bool noised_;
};

// The norm_history of the specification: the norm of a typical record in each part; finite, > 0,
// one per part.
using NormHistory = Steering<struct NormsOfParts>;
// The routing_stats of the specification: the share of records that each expert receives; in [0,
// 1].
using RoutingStats = Steering<struct SharesOfExperts>;

}  // namespace discreet::mechanism
