#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace discreet::data {

// Products of row-major binary32 matrices by OpenBLAS, one call per tile of 128 rows of the result,
// so that the bits depend on the sizes and the processor's kernels (blas_core), not on the number
// of threads. Sizes must match the spans, otherwise kInvalidInput.
//   then: called as then(begin, end) when the rows [begin, end) of the result are computed, by the
//         thread that has them in its cache.
using AfterRows = std::function<void(std::size_t begin, std::size_t end)>;

// c[m][n] = a[m][k] · b[k][n]
void multiply(std::span<const float> a, std::span<const float> b, std::span<float> c, std::size_t m,
              std::size_t n, std::size_t k, int threads, const AfterRows& then = {});
// c[m][n] = a[m][k] · b[n][k]ᵀ
void multiply_transposed(std::span<const float> a, std::span<const float> b, std::span<float> c,
                         std::size_t m, std::size_t n, std::size_t k, int threads,
                         const AfterRows& then = {});

// The kernels that OpenBLAS selected for this processor ("SkylakeX"). A run records it, because
// other kernels round differently.
std::string blas_core();

}  // namespace discreet::data
