#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace discreet::training {

// Products of row-major binary32 matrices by OpenBLAS, one call at a time on tiles of 64 rows of
// the result, so that the bits depend on the sizes and the processor's kernels (blas_core), not on
// the number of threads. Sizes must fit the spans (kInvalidInput).

// c[m][n] = a[m][k] · b[k][n]
void multiply(std::span<const float> a, std::span<const float> b, std::span<float> c, std::size_t m,
              std::size_t n, std::size_t k, int threads);
// c[m][n] = a[m][k] · b[n][k]ᵀ
void multiply_transposed(std::span<const float> a, std::span<const float> b, std::span<float> c,
                         std::size_t m, std::size_t n, std::size_t k, int threads);

// The kernels that OpenBLAS chose for this processor ("SkylakeX"); a run records it, because other
// kernels round differently.
std::string blas_core();

}  // namespace discreet::training
