#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/sampling/geometric_law_impl.h"

namespace discreet::accounting {

// A privacy loss on a lattice. For a pair of distributions P and Q, mass[i] is the probability
// under P of the loss log(dP/dQ) = first + i * step, and `infinite` that of an infinite loss.
// delta(epsilon) = infinite + sum_i mass[i] (1 - e^{epsilon - loss_i})+.
// Proof: balls_and_bins.md
struct LossLaw {
  double step = 0;
  double first = 0;
  std::vector<double> mass;
  double infinite = 0;
  // The represented measure has masses within a factor 1 +- mass_error of these (only on the side
  // that the bound needs) at losses within +- position_error of these.
  double mass_error = 0;
  double position_error = 0;
};

// The privacy loss of a pair whose M = dP/dQ under Q has this law times 1/scale (so E M = 1 if the
// law has mean `scale`): remove is P against Q, add is Q against P. For kUp an upper bound.
LossLaw loss_of(const GeometricLaw& law, double scale, Direction direction);

struct LossCopies {
  const LossLaw* law;
  std::uint64_t count;
};

// sum_j count_j log sum_i mass_ji e^{order loss_ji}: the logarithmic moments of the finite part.
double cumulant(std::span<const LossCopies> copies, double order);

// The order lambda > 0 that minimises (cumulant(lambda) + log(1 / delta)) / lambda, the Chernoff
// bound on epsilon, or cumulant(lambda) - lambda epsilon.
double order_for_delta(std::span<const LossCopies> copies, double delta);
double order_for_epsilon(std::span<const LossCopies> copies, double epsilon);

// The sum of independent losses with a common step, by one transform of the tilted masses mass
// e^{lambda loss - K}. Valid for every epsilon, sharp near the one for which the order was chosen.
class LossSum {
 public:
  LossSum(std::span<const LossCopies> copies, double order);

  // If every law is an upper (lower) bound, so is the result. In [0, 1].
  double delta_upper(double epsilon) const;
  double delta_lower(double epsilon) const;

  // The smallest epsilon >= 0 found with delta_upper(epsilon) <= delta; infinity if none was found.
  double epsilon_upper(double delta) const;
  // An epsilon in [0, ceiling] with delta_lower(epsilon) >= delta; 0 if there is none.
  double epsilon_lower(double delta, double ceiling) const;

 private:
  struct Value {
    double main;
    double noise;
  };
  Value evaluate(double epsilon) const;

  double order_;
  double step_;
  double lowest_ = 0;     // the loss of tail_p_[0]
  double reference_ = 0;  // tails are multiplied by e^{order (loss - reference)}
  double log_scale_ = 0;  // and multiplied by e^{-log_scale_}
  std::vector<double> tail_p_;
  std::vector<double> tail_q_;
  bool skipped_ = false;  // losses below lowest_ have mass that the tails omit
  double infinite_ = 0;
  double relative_ = 0;
  double position_ = 0;
  double noise_ = 0;  // in units of e^{log_scale - order (epsilon - reference)}
};

}  // namespace discreet::accounting
