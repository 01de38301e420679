#pragma once

#include <limits>
#include <string>

#include "discreet/base/error.h"
#include "discreet/numerics/rounding.h"

// Root finding and minimisation in one variable, for functions of binary64.
namespace discreet::numerics {

struct SearchOptions {
  // The search stops when the bracket is at most absolute + relative * |x| wide, where x is the end
  // nearer to the root, or when its ends are neighbouring doubles. Both are >= 0; if both are 0 the
  // search continues until the ends are neighbours.
  double absolute = 0;
  double relative = 0x1p-50;
  // The maximum number of evaluations, including those at the ends of the first bracket.
  int max_evaluations = 200;
};

// A bracket [lower, upper] such that f(lower) and f(upper) have opposite signs or one of them is
// zero: it contains a root of a continuous f. If an end is an exact root, the bracket is that
// point.
struct RootBracket {
  double lower = 0;
  double upper = 0;
  double f_lower = 0;
  double f_upper = 0;
  int evaluations = 0;
  bool converged = false;  // false: stopped by max_evaluations; the bracket is still valid
};

// Narrows [a, b] (in either order, both finite), where f(a) and f(b) have opposite signs, by
// inverse quadratic interpolation where it is safe and bisection elsewhere (Chandrupatla 1997). For
// every f, the returned ends are points at which f was evaluated, with the returned values.
// Throws kInvalidInput if a or b is not finite, if the signs agree, or if f is NaN at a visited
// point, because no decision may depend on a NaN. f may return infinities.
template <class F>
RootBracket find_root(F&& f, double a, double b, const SearchOptions& options = {});

struct Minimum {
  double x = 0;      // the best point visited
  double value = 0;  // f(x)
  double lower = 0;  // a unimodal f has its minimiser in [lower, upper], up to rounding of f
  double upper = 0;
  int evaluations = 0;
  bool converged = false;
};

// The minimum of f on [a, b], a < b finite, by parabolas where they are safe and golden sections
// elsewhere (Brent 1973). Near a smooth minimum, f does not resolve points closer than about
// sqrt(2^-53) relative; a tolerance below 1e-8 costs evaluations without improving the result. f is
// not evaluated at a and b themselves.
// A NaN counts as +inf: a point where f is NaN is the best only if f is NaN at all points.
// Throws kInvalidInput unless a < b and both are finite.
template <class F>
Minimum find_minimum(F&& f, double a, double b, const SearchOptions& options = {0, 0x1p-26, 200});

// ---- implementation ----

namespace detail {

inline bool finite(double x) { return x - x == 0; }
inline double magnitude(double x) { return x < 0 ? -x : x; }

[[noreturn]] inline void refuse_search(const char* op, const char* why, double a, double b) {
  invalid_input(op, "{} (the bracket is [{}, {}])", why, std::to_string(a), std::to_string(b));
}

}  // namespace detail

template <class F>
RootBracket find_root(F&& f, double a, double b, const SearchOptions& options) {
  constexpr const char* kOp = "find_root";
  if (!detail::finite(a) || !detail::finite(b))
    detail::refuse_search(kOp, "the ends must be finite", a, b);
  const auto evaluate = [&](double x) {
    const double y = f(x);
    if (y != y) detail::refuse_search(kOp, "the function is NaN inside the bracket", a, b);
    return y;
  };
  // x1 is the newest point, [x1, x2] brackets, x3 is the point dropped last.
  double x1 = b, x2 = a, f1 = evaluate(b), f2 = evaluate(a), x3 = x2, f3 = f2;
  int evaluations = 2;
  const auto result = [&](bool converged) {
    if (f1 == 0) x2 = x1, f2 = f1;
    if (f2 == 0) x1 = x2, f1 = f2;
    return x1 < x2 ? RootBracket{x1, x2, f1, f2, evaluations, converged}
                   : RootBracket{x2, x1, f2, f1, evaluations, converged};
  };
  if (f1 == 0 || f2 == 0) return result(true);
  if ((f1 > 0) == (f2 > 0))
    detail::refuse_search(kOp, "the function has the same sign at both ends; widen the bracket", a,
                          b);

  double t = 0.5;
  for (;;) {
    const double best = detail::magnitude(f1) < detail::magnitude(f2) ? x1 : x2;
    const double tolerance = options.absolute + options.relative * detail::magnitude(best);
    const double width = detail::magnitude(x2 - x1);
    const double low = x1 < x2 ? x1 : x2, high = x1 < x2 ? x2 : x1;
    if (width <= tolerance || next_up(low) >= high) return result(true);
    if (evaluations >= options.max_evaluations) return result(false);

    // Stay at least a quarter of the tolerance (or one neighbour) away from either end.
    const double least = 0.25 * tolerance / width;
    t = t < least ? least : t > 1 - least ? 1 - least : t;
    double x = x1 + t * (x2 - x1);
    if (!detail::finite(x)) x = 0.5 * x1 + 0.5 * x2;
    if (!(x > low)) x = next_up(low);
    if (!(x < high)) x = next_down(high);
    const double y = evaluate(x);
    ++evaluations;
    if ((y > 0) == (f1 > 0) && y != 0) {
      x3 = x1;
      f3 = f1;
    } else {
      x3 = x2;
      f3 = f2;
      x2 = x1;
      f2 = f1;
    }
    x1 = x;
    f1 = y;
    if (f1 == 0) return result(true);

    const double xi = (x1 - x2) / (x3 - x2), phi = (f1 - f2) / (f3 - f2);
    if (phi * phi < xi && (1 - phi) * (1 - phi) < 1 - xi) {
      t = f1 / (f2 - f1) * (f3 / (f2 - f3)) +
          (x3 - x1) / (x2 - x1) * (f1 / (f3 - f1)) * (f2 / (f3 - f2));
      if (!(t >= 0 && t <= 1)) t = 0.5;
    } else {
      t = 0.5;
    }
  }
}

template <class F>
Minimum find_minimum(F&& f, double a, double b, const SearchOptions& options) {
  if (!detail::finite(a) || !detail::finite(b) || !(a < b))
    detail::refuse_search("find_minimum", "the ends must be finite and in ascending order", a, b);
  constexpr double kGolden = 0x1.8722191a02d61p-2;  // (3 - sqrt 5) / 2
  const auto evaluate = [&](double x) {
    const double y = f(x);
    return y == y ? y : std::numeric_limits<double>::infinity();
  };
  // x is the best point, w the second, v the previous w.
  double x = a + kGolden * (b - a), w = x, v = x;
  double fx = evaluate(x), fw = fx, fv = fx, step = 0, before = 0;
  int evaluations = 1;
  for (;;) {
    const double middle = 0.5 * a + 0.5 * b;
    // At points closer than sqrt of the ulp, f differs only by rounding errors.
    const double tolerance = options.absolute + options.relative * detail::magnitude(x) + 0x1p-1000;
    const double twice = 2 * tolerance;
    const bool converged = detail::magnitude(x - middle) <= twice - 0.5 * (b - a);
    if (converged || evaluations >= options.max_evaluations)
      return {x, fx, a, b, evaluations, converged};

    double p = 0, q = 0, older = 0;
    if (detail::magnitude(before) > tolerance) {
      const double r = (x - w) * (fx - fv);
      q = (x - v) * (fx - fw);
      p = (x - v) * q - (x - w) * r;
      q = 2 * (q - r);
      if (q > 0) p = -p;
      q = detail::magnitude(q);
      older = before;
      before = step;
    }
    if (detail::magnitude(p) < detail::magnitude(0.5 * q * older) && p > q * (a - x) &&
        p < q * (b - x)) {
      step = p / q;
      if (x + step - a < twice || b - x - step < twice) step = x < middle ? tolerance : -tolerance;
    } else {
      before = x < middle ? b - x : a - x;
      step = kGolden * before;
    }
    const double away = detail::magnitude(step) >= tolerance ? step
                        : step > 0                           ? tolerance
                                                             : -tolerance;
    double u = x + away;
    if (!(u > a)) u = next_up(a);
    if (!(u < b)) u = next_down(b);
    const double fu = evaluate(u);
    ++evaluations;
    if (fu <= fx) {
      (u < x ? b : a) = x;
      v = w, fv = fw;
      w = x, fw = fx;
      x = u, fx = fu;
    } else {
      (u < x ? a : b) = u;
      if (fu <= fw || w == x) {
        v = w, fv = fw;
        w = u, fw = fu;
      } else if (fu <= fv || v == x || v == w) {
        v = u, fv = fu;
      }
    }
  }
}

}  // namespace discreet::numerics
