#pragma once

// Stands in for discreet/numerics until that room is merged; to be deleted then.
#include <cmath>
#include <complex>
#include <kissfft/kissfft.hh>
#include <span>

namespace discreet::numerics {
inline double exp(double x) noexcept { return std::exp(x); }
inline double expm1(double x) noexcept { return std::expm1(x); }
inline double log(double x) noexcept { return std::log(x); }
inline double log1p(double x) noexcept { return std::log1p(x); }
inline double erfc(double x) noexcept { return std::erfc(x); }
inline void exp(std::span<const double> in, std::span<double> out) noexcept {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = std::exp(in[i]);
}
inline double normal_quantile(double p) noexcept {
  // Newton on log Phi from a crude start; heuristics only.
  if (p > 0.5) return -normal_quantile(1 - p);
  double z = -std::sqrt(-2 * std::log(p));
  for (int i = 0; i < 60; ++i) {
    const double phi = std::exp(-z * z / 2) / 2.5066282746310002;
    const double cdf = std::erfc(-z / 1.4142135623730951) / 2;
    const double step = (std::log(cdf) - std::log(p)) * cdf / phi;
    z -= step;
    if (std::abs(step) < 1e-13) break;
  }
  return z;
}
inline void fft(std::span<const std::complex<double>> in, std::span<std::complex<double>> out,
                bool inverse) {
  kissfft<double>(in.size(), inverse).transform(in.data(), out.data());
}
}  // namespace discreet::numerics
