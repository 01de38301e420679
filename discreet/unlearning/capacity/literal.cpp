#include "discreet/unlearning/capacity/literal.h"

#include <algorithm>
#include <cmath>

#include "discreet/numerics/elementary.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "unlearning::literal";

void check(const Constants& k) {
  for (const auto& [name, value] :
       {std::pair{"G", k.G}, std::pair{"D", k.D}, std::pair{"c", k.c}, std::pair{"C", k.C}}) {
    require_not_negative(kOp, name, value);
  }
}

void check(const LiteralTarget& t) {
  require_positive(kOp, "eps_total", t.eps_total);
  require_probability(kOp, "delta_total", t.delta_total);
  require_positive(kOp, "lambda", t.lambda);
  require_probability(kOp, "delta_B", t.delta_B);
  require_positive(kOp, "gamma", t.gamma);
  if (t.T < 1 || t.T > kCountLimit) {
    invalid_input(kOp, "T is {}; it must be a number of events from 1 to 2^63 - 1", t.T);
  }
}

double regret(const Constants& k, const LiteralTarget& t, std::uint64_t m) {
  return (insertion_regret(k, t) + deletion_regret(k, t, m)) / static_cast<double>(t.T);
}

}  // namespace

std::uint64_t sample_complexity(const Constants& k, double gamma) {
  check(k);
  require_positive(kOp, "gamma", gamma);
  const double root = k.G * k.D * std::sqrt(k.c * k.C) / gamma;
  const double n = std::ceil(root * root);
  // A product such as 0 · inf is not a number: the constants have overflowed, so has the count.
  if (!(n < 0x1p63)) return kCountLimit;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(n));
}

double insertion_regret(const Constants& k, const LiteralTarget& t) {
  check(k);
  check(t);
  return k.G * k.D * std::sqrt(k.c * k.C * static_cast<double>(t.T));
}

double deletion_regret(const Constants& k, const LiteralTarget& t, std::uint64_t m) {
  check(k);
  check(t);
  if (m == 0) return 0;
  const double count = static_cast<double>(m);
  return count * k.G / t.lambda *
         std::sqrt(2 * numerics::log(1.25 * count / t.delta_total) / t.eps_total *
                   (2 * numerics::log(1 / t.delta_B)));
}

LiteralCapacity literal_capacity(const Constants& k, const LiteralTarget& t) {
  std::uint64_t m = 0;
  if (regret(k, t, 1) <= t.gamma) {
    std::uint64_t low = 1, high = t.T;
    while (low < high) {
      const std::uint64_t middle = low + (high - low + 1) / 2;
      if (regret(k, t, middle) <= t.gamma) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    m = low;
  }
  const std::uint64_t capacity = std::max<std::uint64_t>(1, m);
  const double share = static_cast<double>(capacity);
  LiteralCapacity found{m, capacity, t.eps_total / share, t.delta_total / share, 0};
  found.sigma_step =
      k.G / t.lambda * std::sqrt(2 * numerics::log(1.25 / found.delta_step)) / found.eps_step;
  return found;
}

}  // namespace discreet::unlearning
