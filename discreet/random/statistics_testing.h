#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

// Test statistics for the distributions of this room. Seeds are fixed, so a test either always
// passes or always fails. At these thresholds a correct sampler with a new seed would raise a
// false alarm with probability at most 1e-6.
namespace discreet::random::testing {

// √n · sup |F_n − F|. Kolmogorov's law gives P(> 2.69) = 2·exp(−2·2.69²) < 1.1e-6.
inline constexpr double kKolmogorovLimit = 2.70;

inline double kolmogorov(std::vector<double> sample, const std::function<double(double)>& cdf) {
  std::sort(sample.begin(), sample.end());
  const double n = static_cast<double>(sample.size());
  double distance = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double f = cdf(sample[i]);
    distance =
        std::max({distance, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  return distance * std::sqrt(n);
}

// A standardised deviation: P(|Z| > 4.9) < 1e-6.
inline constexpr double kNormalLimit = 4.9;

// The chi-square statistic of integer samples against an exact law, as a standard normal deviate
// (Wilson–Hilferty). Cells expected fewer than 20 times are merged into the two tails.
inline double chi_square_deviate(std::span<const std::int64_t> sample,
                                 const std::function<double(std::int64_t)>& pmf, std::int64_t low,
                                 std::int64_t high) {
  const double n = static_cast<double>(sample.size());
  while (low < high && n * pmf(low) < 20) ++low;
  while (high > low && n * pmf(high) < 20) --high;
  std::map<std::int64_t, double> observed;
  double outside = 0;
  for (const std::int64_t y : sample) (y < low || y > high ? outside : observed[y]) += 1;
  double statistic = 0, inside = 0;
  for (std::int64_t y = low; y <= high; ++y) {
    const double expected = n * pmf(y);
    inside += expected;
    statistic += (observed[y] - expected) * (observed[y] - expected) / expected;
  }
  double cells = static_cast<double>(high - low);  // one less than the number of cells
  if (n - inside > 1) {
    statistic += (outside - (n - inside)) * (outside - (n - inside)) / (n - inside);
    cells += 1;
  }
  const double spread = 2 / (9 * cells);
  return (std::cbrt(statistic / cells) - (1 - spread)) / std::sqrt(spread);
}

inline double mean(std::span<const double> sample) {
  double sum = 0;
  for (const double x : sample) sum += x;
  return sum / static_cast<double>(sample.size());
}

// The correlation of two samples, times √n: standard normal when they are independent.
inline double correlation_deviate(std::span<const double> a, std::span<const double> b) {
  const double ma = mean(a), mb = mean(b);
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - ma) * (b[i] - mb);
    aa += (a[i] - ma) * (a[i] - ma);
    bb += (b[i] - mb) * (b[i] - mb);
  }
  return ab / std::sqrt(aa * bb) * std::sqrt(static_cast<double>(a.size()));
}

}  // namespace discreet::random::testing
