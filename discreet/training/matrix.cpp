#include "discreet/training/matrix.h"

#include <cblas.h>
#include <fmt/core.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/numerics/parallel.h"

namespace discreet::training {
namespace {

constexpr std::size_t kTile = 128;

void check(std::size_t have, std::size_t need, const char* what) {
  if (have >= need) return;
  throw Error(ErrorCode::kInvalidInput, "matrix",
              fmt::format("{} has {} numbers where {} are needed", what, have, need));
}

// OpenBLAS would cut the work by its own number of threads, and round accordingly.
void use_one_blas_thread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(once);
}

void product(std::span<const float> a, std::span<const float> b, std::span<float> c, std::size_t m,
             std::size_t n, std::size_t k, CBLAS_TRANSPOSE of_b, int threads,
             const AfterRows& then) {
  check(a.size(), m * k, "the left factor");
  check(b.size(), k * n, "the right factor");
  check(c.size(), m * n, "the product");
  if (m == 0 || n == 0) return;
  if (k == 0) {
    std::fill_n(c.begin(), m * n, 0.0f);
    if (then) then(0, m);
    return;
  }
  use_one_blas_thread();
  const std::size_t tiles = (m + kTile - 1) / kTile;
  numerics::parallel_items(tiles, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t tile = first; tile < last; ++tile) {
      const std::size_t begin = tile * kTile, end = std::min(m, begin + kTile);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, of_b, static_cast<int>(end - begin),
                  static_cast<int>(n), static_cast<int>(k), 1.0f, a.data() + begin * k,
                  static_cast<int>(k), b.data(), static_cast<int>(of_b == CblasTrans ? k : n), 0.0f,
                  c.data() + begin * n, static_cast<int>(n));
      if (then) then(begin, end);
    }
  });
}

}  // namespace

void multiply(std::span<const float> a, std::span<const float> b, std::span<float> c, std::size_t m,
              std::size_t n, std::size_t k, int threads, const AfterRows& then) {
  product(a, b, c, m, n, k, CblasNoTrans, threads, then);
}

void multiply_transposed(std::span<const float> a, std::span<const float> b, std::span<float> c,
                         std::size_t m, std::size_t n, std::size_t k, int threads,
                         const AfterRows& then) {
  product(a, b, c, m, n, k, CblasTrans, threads, then);
}

std::string blas_core() { return openblas_get_corename(); }

}  // namespace discreet::training
