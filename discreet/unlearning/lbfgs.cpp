#include "discreet/unlearning/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/numerics/sum.h"
#include "discreet/unlearning/dense_impl.h"

namespace discreet::unlearning {
namespace {

using numerics::dot;
using numerics::norm_l2;
using numerics::scaled_add;
using Vector = std::vector<double>;

void require_length(std::size_t given, std::size_t wanted) {
  if (given != wanted) {
    invalid_input("Lbfgs", "the vector has {} elements; expected {}", given, wanted);
  }
}

}  // namespace

Lbfgs::Lbfgs(std::size_t dimension, std::size_t memory) : dimension_(dimension), memory_(memory) {
  if (dimension < 1 || memory < 1) {
    invalid_input("Lbfgs", "dimension {} and memory {}: both must be at least 1", dimension,
                  memory);
  }
}

bool Lbfgs::update(std::span<const double> s, std::span<const double> y) {
  require_length(s.size(), dimension_);
  require_length(y.size(), dimension_);
  const double sy = dot(s, y);
  if (!(sy > 1e-10 * norm_l2(s) * norm_l2(y)) || !std::isfinite(sy)) return false;
  pairs_.push_back({{s.begin(), s.end()}, {y.begin(), y.end()}, sy});
  if (pairs_.size() > memory_) pairs_.pop_front();
  return true;
}

std::vector<double> Lbfgs::direction(std::span<const double> gradient) const {
  require_length(gradient.size(), dimension_);
  Vector q(gradient.begin(), gradient.end());
  Vector alpha(pairs_.size());
  for (std::size_t i = pairs_.size(); i-- > 0;) {
    alpha[i] = dot(pairs_[i].s, q) / pairs_[i].sy;
    scaled_add(-alpha[i], pairs_[i].y, q);
  }
  double scale = -1;
  if (!pairs_.empty()) scale = -pairs_.back().sy / dot(pairs_.back().y, pairs_.back().y);
  for (double& v : q) v *= scale;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const double beta = dot(pairs_[i].y, q) / pairs_[i].sy;
    scaled_add(-alpha[i] - beta, pairs_[i].s, q);
  }
  return q;
}

std::optional<CurvatureBounds> Lbfgs::bounds() const {
  if (pairs_.empty()) return std::nullopt;
  const double sigma = dot(pairs_.back().y, pairs_.back().y) / pairs_.back().sy;

  // B = sigma I + sum of sign * column column'.
  std::vector<Vector> columns;
  Vector signs;
  for (const Pair& pair : pairs_) {
    Vector b(dimension_);
    scaled_add(sigma, pair.s, b);
    for (std::size_t j = 0; j < columns.size(); ++j) {
      scaled_add(signs[j] * dot(columns[j], pair.s), columns[j], b);
    }
    const double sb = dot(pair.s, b);
    if (!(sb > 0)) return std::nullopt;
    Vector y = pair.y;
    for (double& v : y) v /= std::sqrt(pair.sy);
    for (double& v : b) v /= std::sqrt(sb);
    columns.push_back(std::move(y));
    columns.push_back(std::move(b));
    signs.insert(signs.end(), {1.0, -1.0});
  }

  // An orthonormal basis of the columns; each is orthogonalised twice.
  std::vector<Vector> basis;
  for (const Vector& column : columns) {
    Vector v = column;
    for (int pass = 0; pass < 2; ++pass) {
      for (const Vector& q : basis) scaled_add(-dot(q, v), q, v);
    }
    const double rest = norm_l2(v);
    if (rest <= 1e-12 * norm_l2(column) || basis.size() == dimension_) continue;
    for (double& e : v) e /= rest;
    basis.push_back(std::move(v));
  }

  const std::size_t k = basis.size();
  Vector matrix(k * k);
  for (std::size_t j = 0; j < columns.size(); ++j) {
    Vector along(k);
    for (std::size_t a = 0; a < k; ++a) along[a] = dot(basis[a], columns[j]);
    for (std::size_t a = 0; a < k; ++a) {
      for (std::size_t b = 0; b < k; ++b) matrix[a * k + b] += signs[j] * along[a] * along[b];
    }
  }
  for (std::size_t a = 0; a < k; ++a) matrix[a * k + a] += sigma;
  Vector values = symmetric_eigenvalues(std::move(matrix), k);
  if (k < dimension_) values.push_back(sigma);
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  if (!(*least > 0) || !std::isfinite(*greatest)) return std::nullopt;
  return CurvatureBounds{*least, *greatest};
}

}  // namespace discreet::unlearning
