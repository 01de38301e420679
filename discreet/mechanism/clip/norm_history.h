#pragma once

#include <span>
#include <utility>
#include <vector>

namespace discreet::mechanism {

// Numbers that may steer the mechanism. Whatever decides bounds, noise or allocation shows in what
// is released, so it must not be a raw statistic of private records: who makes one of these says
// where the numbers come from, and there is no third way to make one.
template <class What>
class Steering {
 public:
  // They never saw private records: declared, or measured on public data.
  static Steering from_public(std::vector<double> values) {
    return Steering(std::move(values), false);
  }
  // They are functions of values released with noise that the accountant has composed.
  static Steering from_noised_release(std::vector<double> values) {
    return Steering(std::move(values), true);
  }
  // What follows them then reacts to released values, which not every composition allows.
  bool is_noised() const noexcept { return noised_; }
  std::span<const double> values() const noexcept { return values_; }

 private:
  Steering(std::vector<double> values, bool noised) : values_(std::move(values)), noised_(noised) {}
  std::vector<double> values_;
  bool noised_;
};

// The specification's norm_history: the norm of a typical record in each part; finite, > 0, one per
// part.
using NormHistory = Steering<struct NormsOfParts>;
// The specification's routing_stats: the share of records that each expert receives; in [0, 1].
using RoutingStats = Steering<struct SharesOfExperts>;

}  // namespace discreet::mechanism
