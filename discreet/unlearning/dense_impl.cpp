#include "discreet/unlearning/dense_impl.h"

#include <cmath>

namespace discreet::unlearning {

std::vector<double> symmetric_eigenvalues(std::vector<double> m, std::size_t k) {
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, diagonal = 0;
    for (std::size_t p = 0; p < k; ++p) {
      diagonal += m[p * k + p] * m[p * k + p];
      for (std::size_t q = p + 1; q < k; ++q) off += m[p * k + q] * m[p * k + q];
    }
    if (!(off > 1e-30 * diagonal)) break;
    for (std::size_t p = 0; p < k; ++p) {
      for (std::size_t q = p + 1; q < k; ++q) {
        const double mpq = m[p * k + q];
        if (mpq == 0) continue;
        const double theta = (m[q * k + q] - m[p * k + p]) / (2 * mpq);
        const double t =
            std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t i = 0; i < k; ++i) {
          const double a = m[i * k + p], b = m[i * k + q];
          m[i * k + p] = c * a - s * b;
          m[i * k + q] = s * a + c * b;
        }
        for (std::size_t i = 0; i < k; ++i) {
          const double a = m[p * k + i], b = m[q * k + i];
          m[p * k + i] = c * a - s * b;
          m[q * k + i] = s * a + c * b;
        }
      }
    }
  }
  std::vector<double> values(k);
  for (std::size_t i = 0; i < k; ++i) values[i] = m[i * k + i];
  return values;
}

bool cholesky(std::span<double> m, std::size_t d) noexcept {
  for (std::size_t j = 0; j < d; ++j) {
    double* row = m.data() + j * d;
    for (std::size_t i = 0; i < j; ++i) {
      const double* other = m.data() + i * d;
      double value = row[i];
      for (std::size_t k = 0; k < i; ++k) value -= row[k] * other[k];
      row[i] = value / other[i];
    }
    double pivot = row[j];
    for (std::size_t k = 0; k < j; ++k) pivot -= row[k] * row[k];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    row[j] = std::sqrt(pivot);
  }
  return true;
}

void cholesky_solve(std::span<const double> l, std::size_t d, std::span<double> b) noexcept {
  for (std::size_t i = 0; i < d; ++i) {
    double value = b[i];
    for (std::size_t k = 0; k < i; ++k) value -= l[i * d + k] * b[k];
    b[i] = value / l[i * d + i];
  }
  for (std::size_t i = d; i-- > 0;) {
    const double value = b[i] / l[i * d + i];
    b[i] = value;
    for (std::size_t k = 0; k < i; ++k) b[k] -= l[i * d + k] * value;
  }
}

}  // namespace discreet::unlearning
