#include "discreet/unlearning/engines/erm_engine.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/strict_arithmetic.h"
#include "discreet/unlearning/dense_impl.h"
#include "discreet/unlearning/engines/erm_rounding_impl.h"
#include "discreet/unlearning/engines/stream_engine.h"
#include "discreet/unlearning/records_impl.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "ErmEngine";

const ErmOptions& checked(const ErmOptions& o) {
  if (o.dimension < 1 || o.dimension > 4096) {
    refuse(kOp, "dimension", static_cast<double>(o.dimension), "1 to 4096");
  }
  for (const auto& [name, value] :
       {std::pair{"lambda", o.lambda}, std::pair{"R", o.R}, std::pair{"Y", o.Y},
        std::pair{"tau", o.tau}, std::pair{"sigma", o.sigma}}) {
    require_moderate(kOp, name, value);
  }
  if (o.N < 1 || o.n_max < 1 || o.N > (std::uint64_t{1} << 40) ||
      o.n_max > (std::uint64_t{1} << 40)) {
    invalid_input(kOp, "N is {} and n_max {}; both must be in 1 to 2^40", o.N, o.n_max);
  }
  if (o.guarantee == Guarantee::kNotCertified) {
    invalid_input(kOp, "a guarantee is required: per-record, set-level or transcript");
  }
  return o;
}

double sensitivity_of(const ErmOptions& o) {
  const double residual = 2 * o.tau / o.lambda;
  if (o.guarantee != Guarantee::kTranscript) return up(residual);
  const auto N = static_cast<double>(o.N);
  double G_f = o.R;
  if (o.loss == Loss::kSquared) {
    G_f *= o.Y * (1 + o.R * std::sqrt(static_cast<double>(o.n_max) / (N * o.lambda)));
  }
  return up(G_f / (o.lambda * N) + residual);
}

}  // namespace

ErmEngine::ErmEngine(ErmOptions options, NoiseSource noise)
    : o_(checked(options)),
      noise_(std::move(noise)),
      budget_(rho_of(o_.accounting, o_.eps_total, o_.delta_total)),
      sensitivity_(sensitivity_of(o_)),
      w_(o_.dimension),
      pending_(o_.dimension) {
  const double ratio = sensitivity_ / o_.sigma;
  rho_release_ = up(ratio * ratio / 2);
}

std::uint64_t ErmEngine::releases_left() const {
  const double unit = std::ceil(rho_release_ / RhoBudget::kUnit) * RhoBudget::kUnit;
  return static_cast<std::uint64_t>(budget_.left() / unit);
}

void ErmEngine::insert(RecordId id, std::span<const double> x, double y) {
  require_record("ErmEngine.insert", o_.dimension, x, y);
  require_new(*this, id);
  require_room(kOp, *this, o_.n_max);
  const double label = label_within("ErmEngine.insert", o_.loss, y, o_.Y);
  const std::vector<double> row = within(x, o_.R);
  rows_.insert(rows_.end(), row.begin(), row.end());
  labels_.push_back(label);
  row_ids_.push_back(id);
  ids_.emplace(id, row_ids_.size() - 1);
  if (factor_.empty()) {
    gram_.clear();  // it is kept up together with the factor
  } else {
    inserted_.push_back(id);
  }
}

double ErmEngine::gradient(std::span<const double> w, std::span<double> out, double& error) const {
  numerics::require_round_to_nearest();
  const std::size_t d = o_.dimension, n = live();
  std::fill(out.begin(), out.end(), 0.0);
  std::vector<double> z(kBlock), e(kBlock), part(d);
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    const double* x = &rows_[first * d];
    cblas_dgemv(CblasRowMajor, CblasNoTrans, as_int(count), as_int(d), 1, x, as_int(d), w.data(), 1,
                0, z.data(), 1);
    if (o_.loss == Loss::kSquared) {
      for (std::size_t i = 0; i < count; ++i) z[i] -= labels_[first + i];
    } else {
      for (std::size_t i = 0; i < count; ++i) z[i] *= labels_[first + i];
      numerics::exp(std::span<const double>(z).first(count), std::span(e).first(count));
      for (std::size_t i = 0; i < count; ++i) z[i] = -labels_[first + i] / (1 + e[i]);
    }
    cblas_dgemv(CblasRowMajor, CblasTrans, as_int(count), as_int(d), 1, x, as_int(d), z.data(), 1,
                0, part.data(), 1);
    for (std::size_t i = 0; i < d; ++i) out[i] += part[i];
  }
  const auto N = static_cast<double>(o_.N);
  for (std::size_t i = 0; i < d; ++i) out[i] = out[i] / N + o_.lambda * w[i];

  const double W = numerics::norm_l2_upper(w);
  const double share = static_cast<double>(n) / N;
  const double h = static_cast<double>(kBlock + (n + kBlock - 1) / kBlock);
  const bool squared = o_.loss == Loss::kSquared;
  const double e_z = gamma_of(static_cast<double>(d)) * o_.R * W;
  const double e_psi = squared ? 2 * kRound * (o_.R * W + o_.Y) : 0x1p-51 / 3 + 3 * kRound;
  const double e1 = (squared ? 1 : 0.25) * e_z + e_psi;
  const double P = (squared ? o_.R * W + o_.Y : 1) + e1;
  const double E = share * o_.R * (e1 + gamma_of(h) * P) +
                   gamma_of(2) * (share * P * o_.R * (1 + gamma_of(h)) + o_.lambda * W);
  error = up(up(E) + 0x1p-800);  // and underflow
  return up(up(numerics::norm_l2_upper(out)) + error);
}

double ErmEngine::gradient_bound() const {
  std::vector<double> g(o_.dimension);
  double error = 0;
  return gradient(w_, g, error);
}

void ErmEngine::refine() {
  const std::size_t d = o_.dimension;
  std::vector<double> g(d), step(d), next(d);
  take_inserts();
  if (!factor_.empty() && refactor_due_) refactor();
  std::fill(pending_.begin(), pending_.end(), 0.0);  // the pass below sees every record
  double error = 0, bound = gradient(w_, g, error);
  bool fresh = false;  // the factor is that of w_
  std::uint64_t passes = 1;
  for (int round = 0; bound > o_.tau && round < 200; ++round) {
    if (factor_.empty()) {
      anchor();
      fresh = true;
    }
    step = g;
    cholesky_solve(factor_, d, step);
    if (can_certify_steps()) {
      const double certified = bound_after(g, error, step);
      if (certified <= o_.tau) {
        numerics::scaled_add(-1, step, w_);
        note_move();
        bound = certified;
        break;
      }
    }
    // The norm of the gradient falls along a Newton step that is short enough (erm_engine.md).
    double reached = INFINITY;
    for (double length = 1; length >= (fresh ? 0x1p-20 : 1); length /= 2) {
      next = w_;
      numerics::scaled_add(-length, step, next);
      reached = gradient(next, g, error);
      ++passes;
      if (reached < bound) break;
    }
    if (reached < bound) {
      const bool slow = reached > bound / 4;
      w_ = next;
      note_move();
      bound = reached;
      if (slow && bound > o_.tau) factor_.clear();
      fresh = false;
    } else {
      if (fresh) break;
      factor_.clear();
      bound = gradient(w_, g, error);
      ++passes;
    }
  }
  note_passes(passes);
  if (!(bound <= o_.tau)) {
    fail(ErrorCode::kAccountantDivergence, kOp,
         "the gradient cannot be certified below {} in binary64; raise tau", o_.tau);
  }
}

void ErmEngine::remove_row(RecordId id) {
  const std::size_t d = o_.dimension, at = ids_.at(id), last = row_ids_.size() - 1;
  if (at != last) {
    std::copy_n(&rows_[last * d], d, &rows_[at * d]);
    labels_[at] = labels_[last];
    row_ids_[at] = row_ids_[last];
    ids_[row_ids_[at]] = at;
  }
  std::fill_n(&rows_[last * d], d, 0.0);
  rows_.resize(last * d);
  labels_.pop_back();
  row_ids_.pop_back();
  ids_.erase(id);
}

void ErmEngine::erase(std::span<const RecordId> ids) {
  require_live_batch(*this, ids);
  take_inserts();
  if (stale_ && !factor_.empty()) anchor();
  if (factor_.empty()) {
    gram_.clear();
  } else {
    if (gram_.empty() && o_.loss == Loss::kLogistic) gather_gram();
    for (const RecordId id : ids) change_curvature(ids_.at(id), -1);
  }
  for (const RecordId id : ids) remove_row(id);
  if (factor_.empty()) return;
  refactor();
  if (factor_.empty()) return;
  std::vector<double> step = std::exchange(pending_, std::vector<double>(o_.dimension));
  cholesky_solve(factor_, o_.dimension, step);
  numerics::scaled_add(1, step, w_);
  note_move();
}

Release ErmEngine::publish() {
  if (!budget_.admits(rho_release_)) {
    budget_exceeded("ErmEngine.publish",
                    "the budget allows no further release; retrain with a new one");
  }
  refine();
  budget_.charge(rho_release_);
  Release release{w_, o_.sigma, o_.tau / o_.lambda, ""};
  noise_.add(o_.sigma, release.parameters);
  switch (o_.guarantee) {
    case Guarantee::kTranscript:
      release.guarantee =
          "transcript: each deleted record alone; requests may depend on these releases";
      break;
    case Guarantee::kSetLevel:
      release.guarantee =
          "set-level: releases after the last delete; requests fixed in advance; the engine's "
          "state is not covered";
      break;
    default:
      release.guarantee =
          "per-record: releases after the delete; requests fixed in advance; the engine's state "
          "is not covered";
  }
  return release;
}

void ErmEngine::forget_parameters() noexcept {
  std::fill(w_.begin(), w_.end(), 0.0);
  std::fill(pending_.begin(), pending_.end(), 0.0);
  factor_.clear();
  stale_ = false;
}

}  // namespace discreet::unlearning
