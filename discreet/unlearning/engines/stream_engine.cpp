#include "discreet/unlearning/engines/stream_engine.h"

#include <algorithm>
#include <cmath>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"
#include "discreet/unlearning/records_impl.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "StreamEngine";
constexpr double kRound = 0x1p-53;
constexpr double kUp = 1 + 0x1p-40;  // covers the roundings of a short sum of positive terms

}  // namespace

double loss_slope(Loss loss, double y, double z) noexcept {
  if (loss == Loss::kSquared) return z - y;
  return -y / (1 + numerics::exp(y * z));
}

double loss_value(Loss loss, double y, double z) noexcept {
  if (loss == Loss::kSquared) return (z - y) * (z - y) / 2;
  const double a = -y * z;
  return a > 0 ? a + numerics::log1p(numerics::exp(-a)) : numerics::log1p(numerics::exp(a));
}

StreamEngine::StreamEngine(std::shared_ptr<PrivacyOdometer> odometer, NoiseSource noise,
                           double release_sigma)
    : odometer_(std::move(odometer)), noise_(std::move(noise)), release_sigma_(release_sigma) {
  if (!odometer_ || !odometer_->certified()) {
    invalid_input(kOp, "the odometer is not certified; choose the accounting zcdp, rdp or gdp");
  }
  k_ = odometer_->options().enforced;
  if (odometer_->guarantee() == Guarantee::kTranscript) {
    require_positive(kOp, "release_sigma", release_sigma);
  }
  t0_ = step_offset(k_);
  const double slope = k_.loss == Loss::kSquared ? 1 : 0.25;
  const double eta = 1 / (k_.lambda * (1 + static_cast<double>(t0_)));
  const double e1 = 9 * slope * k_.R * k_.D + 3 + 2 * (k_.R * k_.D + k_.Y);
  step_rounding_ = 1.02 * kRound * (24 * k_.D + eta * (6 * k_.G_f + k_.R * e1)) * kUp + 0x1p-1000;
  theta_.assign(k_.dimension, 0.0);
}

void StreamEngine::insert(RecordId id, std::span<const double> x, double y) {
  require_record("StreamEngine.insert", dimension(), x, y);
  require_new(*this, id);
  const double label = label_within("StreamEngine.insert", k_.loss, y, k_.Y);
  const std::vector<double> row = within(x, k_.R);
  ids_.insert(id);

  ++t_;
  const double share = 1 / offset();
  const double keep = 1 - share;
  const double limit = k_.G_f / k_.R * (1 - 0x1p-50);
  const double slope =
      std::clamp(loss_slope(k_.loss, label, numerics::dot(row, theta_)), -limit, limit);
  const double step = share / k_.lambda * slope;
  for (std::size_t i = 0; i < theta_.size(); ++i) theta_[i] = keep * theta_[i] - step * row[i];
  project();
  rounding_ = (rounding_ + 2 * step_rounding_ * offset()) * (1 + 0x1p-51);
}

void StreamEngine::project() noexcept {
  const double norm = numerics::norm_l2_upper(theta_);
  if (norm <= k_.D) return;
  const double factor = k_.D / norm;
  for (double& v : theta_) v *= factor;
}

double StreamEngine::sensitivity() const {
  return (k_.G_f / k_.lambda + rounding_) / offset() * kUp;
}

void StreamEngine::erase(std::span<const RecordId> ids) {
  require_live_batch(*this, ids);
  const auto count = static_cast<double>(ids.size());
  double shift = sensitivity();
  // Together: b shifts of a at b rho. Each alone: one shift of a at rho covers every member.
  if (odometer_->guarantee() == Guarantee::kSetLevel) shift *= std::sqrt(count) * kUp;
  std::vector<double> noised = theta_;
  odometer_->spend(ids.size());
  const double sigma = odometer_->noise_scale(shift);
  noise_.add(sigma, noised);
  theta_ = std::move(noised);
  project();
  const double reach = 14 * sigma * std::sqrt(static_cast<double>(dimension()));
  rounding_ = (rounding_ + 2 * offset() * kRound * (20 * k_.D + reach + count * shift) * kUp) *
              (1 + 0x1p-51);
  for (const RecordId id : ids) ids_.erase(id);
}

Release StreamEngine::publish() {
  Release release{theta_, 0, 0, ""};
  if (odometer_->guarantee() == Guarantee::kTranscript) {
    const double ratio = sensitivity() / release_sigma_;
    odometer_->charge_reserve(ratio * ratio / 2 * kUp);
    noise_.add(release_sigma_, release.parameters);
    release.sigma = release_sigma_;
    release.guarantee =
        "transcript: each deleted record alone; requests may depend on these releases";
  } else {
    release.guarantee = fmt::format(
        "{}: state after the delete; requests fixed in advance; earlier releases are "
        "not covered",
        to_string(odometer_->guarantee()));
  }
  return release;
}

void StreamEngine::reset() noexcept {
  std::fill(theta_.begin(), theta_.end(), 0.0);
  ids_.clear();
  t_ = 0;
  rounding_ = 0;
}

}  // namespace discreet::unlearning
