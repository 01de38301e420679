#pragma once

// Stands in for discreet/numerics/fft.h until that is merged; to be deleted then.
#include <cmath>
#include <complex>
#include <kissfft/kissfft.hh>
#include <span>

namespace discreet::numerics {
inline void fft(std::span<const std::complex<double>> in, std::span<std::complex<double>> out,
                bool inverse) {
  kissfft<double>(in.size(), inverse).transform(in.data(), out.data());
}
}  // namespace discreet::numerics
