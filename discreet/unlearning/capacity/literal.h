#pragma once

#include <cstdint>

// The formulas of the specification, evaluated as written: not certified.
//
// They are provided for comparison with the specification's numbers. They support no privacy claim:
// G/lambda does not bound what a deletion leaves behind, G is an estimate that some records exceed,
// and R_del omits the dimension (literal.md). The engines compute the certified values.
//
// All arithmetic is binary64 in the order of the formulas, with logarithms within 1 ulp. Results
// agree with an evaluation in sixty digits to 1e-14 relative; capacities agree exactly unless the
// regret of a count equals gamma to that accuracy.
// Proof: literal.md
namespace discreet::unlearning {

// The estimates of calibration: gradient norm G, diameter D, curvature c <= C. Each finite and >=
// 0.
struct Constants {
  double G = 1;
  double D = 1;
  double c = 1;
  double C = 1;
  friend bool operator==(const Constants&, const Constants&) = default;
};

struct LiteralTarget {
  double eps_total;          // > 0
  double delta_total;        // in (0, 1)
  double lambda;             // > 0
  double delta_B = 0.05;     // in (0, 1): failure probability of the regret bound
  std::uint64_t T = 100000;  // planned events, >= 1
  double gamma = 0.05;       // > 0: allowed average regret
};

// Counts saturate here: the largest value of a signed 64-bit integer.
inline constexpr std::uint64_t kCountLimit = 0x7fffffffffffffff;

// N* = max(1, ceil((G D sqrt(c C) / gamma)^2)), at most kCountLimit. gamma > 0 finite.
// Throws kInvalidInput for constants or a gamma out of range, as do all functions here.
std::uint64_t sample_complexity(const Constants& constants, double gamma);

// R_ins = G D sqrt(c C T).
double insertion_regret(const Constants& constants, const LiteralTarget& target);

// R_del(m) = (m G / lambda) sqrt((2 ln(1.25 m / delta) / eps) 2 ln(1 / delta_B)); R_del(0) = 0.
double deletion_regret(const Constants& constants, const LiteralTarget& target, std::uint64_t m);

struct LiteralCapacity {
  std::uint64_t m;         // largest in [1, T] with (R_ins + R_del(m)) / T <= gamma; 0 if none
  std::uint64_t capacity;  // max(1, m): number of deletes that the specification permits
  double eps_step;         // eps_total / capacity
  double delta_step;       // delta_total / capacity
  double sigma_step;       // (G / lambda) sqrt(2 ln(1.25 / delta_step)) / eps_step; may be +inf
};
LiteralCapacity literal_capacity(const Constants& constants, const LiteralTarget& target);

}  // namespace discreet::unlearning
