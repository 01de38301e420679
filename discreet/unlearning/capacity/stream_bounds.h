#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Streaming with enforced constants: how far a record can move the state, the resulting regret, and
// the number of deletes that a regret budget allows.
//
// Step t = 1, 2, ... has size 1/(lambda s), s = t + t0, on one record's loss plus (lambda/2)
// |theta|^2, projected onto the ball of radius D. Clipping the derivative of the loss in the
// prediction bounds its gradient by G_f.
// Proof: ../engines/stream.md
namespace discreet::unlearning {

enum class Loss {
  kSquared,   // (y - x'theta)^2 / 2
  kLogistic,  // log(1 + exp(-y x'theta)), y = -1 or 1
};
std::string_view to_string(Loss loss) noexcept;  // "squared", "logistic"

// Public constants, chosen without looking at the data and enforced on every record. Each is in
// [2^-100, 2^100].
struct StreamConstants {
  Loss loss = Loss::kLogistic;
  std::size_t dimension = 1;  // >= 1
  double lambda = 0.1;        // > 0
  double G_f = 1;             // > 0: bound of a record's gradient norm, by clipping
  double D = 1;               // > 0: radius of the ball of parameters
  double R = 1;               // > 0: bound of a record's feature norm, by scaling
  double Y = 1;               // > 0: bound of |y| (squared loss), by clamping
};

// Throws kInvalidInput unless every constant is in its range.
void require_valid(const StreamConstants& constants);

// t0 = max(1, ceil(L R^2 / (2 lambda))), L the largest slope of the loss's derivative: 1/4
// logistic, 1 squared. Rounded up. Throws kInvalidInput beyond 2^40.
std::uint64_t step_offset(const StreamConstants& constants);

// R_learn(T) = lambda t0 D^2 / 2 + (G^2 / (2 lambda)) ln(1 + T/t0), G = G_f + lambda D: an upper
// bound of the regret of T inserts against every fixed parameter of norm <= D, without deletes;
// evaluated in binary64 without directed rounding.
double learning_regret(const StreamConstants& constants, std::uint64_t T);

// The smallest t with R_learn(t)/t <= gamma; kCountLimit if that is beyond 2^53. gamma > 0.
std::uint64_t certified_sample_complexity(const StreamConstants& constants, double gamma);

// The number of deletes that keep the expected regret of T inserts, divided by T, at most gamma, if
// no delete happens before step t_min. These are bounds on utility: privacy does not depend on
// them.
struct StreamCapacity {
  std::uint64_t per_record;  // if each delete uses the whole rho
  std::uint64_t set_level;   // if all deletes share rho equally
};
// rho >= 0, T >= 1, gamma > 0. Both are 0 if learning alone exceeds gamma; at most T.
StreamCapacity stream_capacity(const StreamConstants& constants, double rho, std::uint64_t T,
                               std::uint64_t t_min, double gamma);

}  // namespace discreet::unlearning
