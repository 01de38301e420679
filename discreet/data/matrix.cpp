#include "discreet/data/matrix.h"

#include <cblas.h>
#include <fmt/core.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/numerics/parallel.h"

namespace discreet::data {
namespace {

// The work is cut by the number of rows alone: rounding must not depend on threads. An even number
// of tiles of about 128 rows, nearly equal so that no thread waits for another's remainder; their
// ends are multiples of the product's own inner tiles.
constexpr std::size_t kRowsOfTile = 128, kUnit = 16;

std::size_t tiles_of(std::size_t m) {
  if (m <= kRowsOfTile) return 1;
  return 2 * std::max<std::size_t>(1, (m + kRowsOfTile) / (2 * kRowsOfTile));
}

std::size_t begin_of(std::size_t tile, std::size_t tiles, std::size_t m) {
  return tile == tiles ? m : (m * tile / tiles + kUnit / 2) / kUnit * kUnit;
}

void check(std::size_t have, std::size_t need, const char* what) {
  if (have >= need) return;
  invalid_input("matrix", "{} has {} numbers; expected {}", what, have, need);
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
  const std::size_t tiles = tiles_of(m);
  numerics::parallel_items(tiles, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t tile = first; tile < last; ++tile) {
      const std::size_t begin = begin_of(tile, tiles, m), end = begin_of(tile + 1, tiles, m);
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

}  // namespace discreet::data
