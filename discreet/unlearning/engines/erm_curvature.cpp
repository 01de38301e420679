// The Hessian of an ErmEngine, updated by inserts and deletes, and the certificate of a Newton
// step without another pass over the data.
#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/strict_arithmetic.h"
#include "discreet/numerics/sum.h"
#include "discreet/unlearning/dense_impl.h"
#include "discreet/unlearning/engines/erm_engine.h"
#include "discreet/unlearning/engines/erm_rounding_impl.h"
#include "discreet/unlearning/engines/stream_engine.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "ErmEngine";
constexpr double kBend =
    0.0962250448649377;  // above 1/(6 sqrt 3): the logistic loss's third derivative

}  // namespace

void ErmEngine::anchor() {
  const std::size_t d = o_.dimension, n = live();
  std::vector<double> hessian(d * d), scaled(kBlock * d), z(kBlock), e(kBlock);
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    const double* x = &rows_[first * d];
    if (o_.loss == Loss::kLogistic) {
      cblas_dgemv(CblasRowMajor, CblasNoTrans, as_int(count), as_int(d), 1, x, as_int(d), w_.data(),
                  1, 0, z.data(), 1);
      numerics::exp(std::span<const double>(z).first(count), std::span(e).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        const double p = 1 / (1 + e[i]);
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
    fail(ErrorCode::kAccountantDivergence, kOp,
         "the Hessian is not positive definite in binary64; raise lambda");
  }
  hessian_ = std::move(hessian);
  factor_ = std::move(factor);
  anchor_ = w_;
  anchored_rows_ = n;
  radius_ = shift_ = 0;
  curvature_changes_ = 0;
  if (!inserted_.empty()) gram_.clear();  // they are in the Hessian only
  inserted_.clear();
  refactor_due_ = stale_ = false;
  quick_ = passes_more_ = 0;
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
  shift_ = up(shift_ + (std::abs(numerics::dot(x, moved())) + 16 * kRound * o_.R * radius_) / N);
  refactor_due_ = true;
  if (gram_.empty()) return;
  cblas_dsyr(CblasRowMajor, CblasLower, as_int(d), sign / N, x.data(), 1, gram_.data(), as_int(d));
  ++gram_changes_;
}

void ErmEngine::take_inserts() {
  if (factor_.empty() || inserted_.size() > live() / 8) {
    // Computing it again is as cheap, and keeps nothing of the old sums.
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

std::vector<double> ErmEngine::moved() const {
  std::vector<double> by = w_;
  numerics::scaled_add(-1, anchor_, by);
  return by;
}

void ErmEngine::note_move() {
  if (!factor_.empty()) radius_ = std::max(radius_, up(numerics::norm_l2_upper(moved())));
}

void ErmEngine::note_passes(std::uint64_t passes) {
  passes == 1 ? ++quick_ : passes_more_ += passes - 1;
  // What a Hessian costs, in passes; worth it when the last one saved as many.
  const std::uint64_t cost = 1 + o_.dimension / 12;
  stale_ = stale_ || passes > 2 || (passes_more_ >= cost && quick_ >= cost);
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

double ErmEngine::spread(std::span<const double> v, double norm) const {
  const std::size_t d = o_.dimension;
  std::vector<double> along(d);
  cblas_dsymv(CblasRowMajor, CblasLower, as_int(d), 1, gram_.data(), as_int(d), v.data(), 1, 0,
              along.data(), 1);
  const auto rows = static_cast<double>(gathered_rows_),
             changes = static_cast<double>(gram_changes_);
  const double size = 2 * (rows + changes) / static_cast<double>(o_.N) * o_.R * o_.R;
  const double h = static_cast<double>(kBlock) + std::ceil(rows / static_cast<double>(kBlock));
  const double error = size * (gamma_of(h + 4) + 8 * kRound * (changes + 1) +
                               gamma_of(2 * static_cast<double>(d) + 20));
  return up(std::max(0.0, numerics::dot(v, along)) + error * norm * norm);
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

  double stale = 0, q = 0;  // what the Hessian is off by, along the step; its spread over the rows
  if (!squared) {
    q = spread(step, v);
    stale = bend * R * (std::sqrt(spread(moved(), radius_) * q) + R * shift_ * v);
  }
  const double rounding = gamma_of(columns + 4) * (G + size * v) + e_hessian * v +
                          4 * kRound * (o_.lambda + n / N * R * R) * W;
  return up(up(numerics::norm_l2_upper(rest)) + error + up(rounding + stale + bend * R / 2 * q) +
            0x1p-800);
}

}  // namespace discreet::unlearning
