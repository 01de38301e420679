#pragma once

#include <functional>
#include <span>

#include "discreet/accounting/renyi/rdp.h"

// Converts log-moments to (epsilon, delta).
//
// If K bounds the log-moment of everything released at order a = 1 + c, then for every delta in (0,
// 1) the release is (epsilon, delta)-DP with
//
//   epsilon = r + log(1 - 1/a) - log(delta a)/(a - 1),   r = K / c
//
// (Canonne, Kamath, Steinke 2020; Asoodeh et al. 2020; Balle et al. 2020), and with epsilon = 0 if
// delta^2 >= 1 - e^{-r} (Bretagnolle and Huber). Every order gives a valid bound, so the
// minimisation may be approximate. epsilon is rounded up and is never negative.
//
// Proof: rdp.md
namespace discreet::accounting {

// The log-moment of a composition at an order: the sum of the upper bounds of its steps, rounded
// up.
using MomentSum = std::function<LogMoment(double order)>;

// The declared grid of orders: 1.1, 1.2 .. 10.9, then 11 .. 64, then 80, 96, 128, 192, 256, 512,
// 1024. It never changes, because recorded results refer to it.
std::span<const double> declared_orders() noexcept;

struct RenyiEpsilon {
  double epsilon;  // rounded up; +inf if no order gives a finite bound
  double order;    // the order that attains it
};

// The bound at one order, rounded up. delta in (0, 1), order > 1, log_moment >= 0.
double epsilon_at_order(double order, double log_moment, double delta);

// The smallest bound over the declared grid. Evaluates every order; of equal minima the first is
// returned.
RenyiEpsilon epsilon_on_grid(const MomentSum& moments, double delta);

// The smallest bound over all orders up to 16385. epsilon(a) is quasi-convex (rdp.md), so the root
// of its derivative is found from `slope` in about ten evaluations. The result is at most the
// grid's bound, up to 1e-9 relative.
RenyiEpsilon minimise_epsilon(const MomentSum& moments, double delta);

// The smallest delta for an epsilon >= 0, rounded up, at most 1.
double minimise_delta(const MomentSum& moments, double epsilon);

}  // namespace discreet::accounting
