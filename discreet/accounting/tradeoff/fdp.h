#pragma once

#include <functional>
#include <span>
#include <vector>

#include "discreet/accounting/composition.h"

// Trade-off curves (f-DP, Dong, Roth, Su 2022).
//
// For a test of "the record took part" against "it did not", f(alpha) is the smallest possible type
// II error at type I error alpha: convex, non-increasing, f(alpha) <= 1 - alpha. A larger f is more
// private. f and the divergence curve delta(epsilon) of both directions determine each other:
//
//   f(alpha) = sup over epsilon >= 0 of
//              max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)).
//
// Each epsilon gives two supporting lines. Finitely many of them, with upper bounds of delta, give
// a curve below the true one, which is the safe side. Everything is rounded down. Composition uses
// delta(epsilon) of the composition (pld.h): exact, not by the central limit theorem.
//
// Proof: fdp.md
namespace discreet::accounting {

class TradeoffCurve {
 public:
  // delta_upper(epsilon) bounds delta from above in both directions; it is called once for each
  // epsilon. epsilons: at least one, each >= 0, otherwise kInvalidInput; include 0. More of them,
  // denser where delta decreases, give a tighter curve.
  TradeoffCurve(const std::function<double(double)>& delta_upper, std::span<const double> epsilons);

  // A lower bound of the type II error. alpha in [0, 1], otherwise kInvalidInput.
  double operator()(double alpha) const;

 private:
  struct Line {
    double growth;  // e^epsilon, within 2 ulp
    double delta;
  };
  std::vector<Line> lines_;
};

// The curve of a composition from certified values of delta at `points` >= 2 epsilons, equally
// spaced from 0 to the epsilon where delta is below 1e-12.
TradeoffCurve tradeoff_curve(const Composition& steps, int points = 64);

// An enclosure of G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu), the curve of full-batch Gaussian
// releases with mu^2 = sum 1/sigma^2. mu >= 0 finite, alpha in [0, 1], otherwise kInvalidInput.
Interval gaussian_tradeoff(double mu, double alpha);

}  // namespace discreet::accounting
