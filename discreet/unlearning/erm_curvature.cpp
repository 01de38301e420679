// The Hessian of an ErmEngine, kept up with inserts and deletes, and the certificate of a Newton
// step without another pass over the data.
#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/strict_arithmetic.h"
#include "discreet/numerics/sum.h"
#include "discreet/unlearning/dense_impl.h"
#include "discreet/unlearning/erm_engine.h"
#include "discreet/unlearning/erm_rounding_impl.h"
#include "discreet/unlearning/require_impl.h"
#include "discreet/unlearning/stream_engine.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "ErmEngine";
constexpr double kBend =
    0.0962250448649377;  // above 1/(6 sqrt 3): the logistic loss's third derivative

}  // namespace

void ErmEngine::anchor() {
  const std::size_t d = o_.dimension, n = live();
  std::vector<double> hessian(d * d), scaled(kBlock * d), z(kBlock);
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    const double* x = &rows_[first * d];
    if (o_.loss == Loss::kLogistic) {
      cblas_dgemv(CblasRowMajor, CblasNoTrans, as_int(count), as_int(d), 1, x, as_int(d), w_.data(),
                  1, 0, z.data(), 1);
      for (std::size_t i = 0; i < count; ++i) {
        const double p = 1 / (1 + numerics::exp(z[i]));
        const double root = std::sqrt(p * (1 - p));
        for (std::size_t k = 0; k < d; ++k) scaled[i * d + k] = root * x[i * d + k];
      }
      x = scaled.data();
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, as_int(d), as_int(count),
                1 / static_cast<double>(o_.N), x, as_int(d), 1, hessian.data(), as_int(d));
  }
  for (std::size_t i = 0; i < d; ++i) hessian[i * d + i] += o_.lambda;
  std::vector<double> factor = hessian;
  if (!cholesky(factor, d)) {
    throw Error(ErrorCode::kAccountantDivergence, kOp,
                "the Hessian is not positive definite in binary64; raise lambda");
  }
  hessian_ = std::move(hessian);
  factor_ = std::move(factor);
  anchor_ = w_;
  anchored_rows_ = n;
  radius_ = 0;
  curvature_changes_ = removed_ = 0;
  if (!inserted_.empty()) gram_.clear();  // they are in the Hessian only
  inserted_.clear();
  refactor_due_ = stale_ = false;
}

void ErmEngine::gather_gram() {
  const std::size_t d = o_.dimension, n = live();
  gram_.assign(d * d, 0.0);
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, as_int(d), as_int(count),
                1 / static_cast<double>(o_.N), &rows_[first * d], as_int(d), 1, gram_.data(),
                as_int(d));
  }
  gathered_rows_ = n;
  gram_changes_ = 0;
}

void ErmEngine::change_curvature(std::size_t at, double sign) {
  const std::size_t d = o_.dimension;
  const auto N = static_cast<double>(o_.N);
  const std::span<const double> x(&rows_[at * d], d);
  const double slope = loss_slope(o_.loss, labels_[at], numerics::dot(x, w_));
  numerics::scaled_add(-sign * slope / N, x, pending_);
  const double p = std::abs(slope);
  const double curvature = o_.loss == Loss::kSquared ? 1 : p * (1 - p);
  cblas_dsyr(CblasRowMajor, CblasLower, as_int(d), sign * curvature / N, x.data(), 1,
             hessian_.data(), as_int(d));
  ++curvature_changes_;
  if (sign < 0) ++removed_;
  refactor_due_ = true;
  if (gram_.empty()) return;
  cblas_dsyr(CblasRowMajor, CblasLower, as_int(d), sign / N, x.data(), 1, gram_.data(), as_int(d));
  ++gram_changes_;
}

void ErmEngine::take_inserts() {
  if (factor_.empty() || inserted_.size() > live() / 8) {
    // As cheap to compute anew; nothing of the old sums stays.
    if (!inserted_.empty()) gram_.clear();
    factor_.clear();
    std::fill(pending_.begin(), pending_.end(), 0.0);
  } else {
    for (const RecordId id : inserted_) change_curvature(ids_.at(id), 1);
  }
  inserted_.clear();
}

void ErmEngine::refactor() {
  factor_ = hessian_;
  if (!cholesky(factor_, o_.dimension)) factor_.clear();
  refactor_due_ = false;
}

void ErmEngine::note_move() {
  if (factor_.empty()) return;
  std::vector<double> moved(w_.size());
  for (std::size_t i = 0; i < w_.size(); ++i) moved[i] = w_[i] - anchor_[i];
  radius_ = std::max(radius_, up(numerics::norm_l2_upper(moved)));
}

bool ErmEngine::can_certify_steps() const {
  return !factor_.empty() && (!gram_.empty() || o_.loss == Loss::kSquared);
}

std::optional<double> ErmEngine::newton_step() {
  take_inserts();
  if (!can_certify_steps()) return std::nullopt;
  if (refactor_due_) refactor();
  if (factor_.empty()) return std::nullopt;
  std::fill(pending_.begin(), pending_.end(), 0.0);
  std::vector<double> g(o_.dimension);
  double error = 0;
  gradient(w_, g, error);
  std::vector<double> step = g;
  cholesky_solve(factor_, o_.dimension, step);
  const double bound = bound_after(g, error, step);
  numerics::scaled_add(-1, step, w_);
  note_move();
  return bound;
}

double ErmEngine::bound_after(std::span<const double> g, double error,
                              std::span<const double> step) const {
  numerics::require_round_to_nearest();
  const std::size_t d = o_.dimension;
  const auto N = static_cast<double>(o_.N), n = static_cast<double>(live());
  const auto columns = static_cast<double>(d);
  const bool squared = o_.loss == Loss::kSquared;
  const double bend = squared ? 0 : kBend, R = o_.R;

  // g - H step, as computed.
  std::vector<double> rest(g.begin(), g.end());
  cblas_dsymv(CblasRowMajor, CblasLower, as_int(d), -1, hessian_.data(), as_int(d), step.data(), 1,
              1, rest.data(), 1);
  const double v = up(numerics::norm_l2_upper(step)), G = up(numerics::norm_l2_upper(g));
  const auto changes = static_cast<double>(curvature_changes_);
  const auto rows = static_cast<double>(anchored_rows_);
  const double W = up(numerics::norm_l2_upper(anchor_) + radius_ + v);

  // Frobenius norms of the sums, and how far their roundings can have moved them.
  const double size = 2 * up(o_.lambda * std::sqrt(columns) + (rows + changes) / N * R * R);
  const double h = static_cast<double>(kBlock) + std::ceil(rows / static_cast<double>(kBlock));
  const double e_curve = bend * gamma_of(columns + 8) * R * W + 16 * kRound;
  const double e_hessian = rows / N * R * R * (e_curve + gamma_of(h + 16)) +
                           changes * (R * R / N * e_curve + 8 * kRound * size) + 4 * kRound * size;

  double q = 0;  // v' Gram v
  if (!squared) {
    std::vector<double> along(d);
    cblas_dsymv(CblasRowMajor, CblasLower, as_int(d), 1, gram_.data(), as_int(d), step.data(), 1, 0,
                along.data(), 1);
    const auto gathered = static_cast<double>(gathered_rows_);
    const auto updates = static_cast<double>(gram_changes_);
    const double gram_size = 2 * (gathered + updates) / N * R * R;
    const double gram_h =
        static_cast<double>(kBlock) + std::ceil(gathered / static_cast<double>(kBlock));
    const double e_gram = gram_size * (gamma_of(gram_h + 4) + 8 * kRound * (updates + 1));
    q = up(std::max(0.0, numerics::dot(step, along)) +
           (e_gram + gamma_of(2 * columns + 20) * gram_size) * v * v);
  }

  const double radius = up(radius_ + kRound * W);
  const double rounding = gamma_of(columns + 4) * (G + size * v) + e_hessian * v +
                          4 * kRound * (o_.lambda + n / N * R * R) * W;
  const double stale = 2 * bend * R * radius *
                       (R * std::sqrt(n / N * q) + static_cast<double>(removed_) / N * R * R * v);
  return up(up(numerics::norm_l2_upper(rest)) + error + up(rounding + stale + bend * R / 2 * q) +
            0x1p-800);
}

}  // namespace discreet::unlearning
