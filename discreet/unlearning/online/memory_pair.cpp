#include "discreet/unlearning/online/memory_pair.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "discreet/numerics/sum.h"
#include "discreet/unlearning/records_impl.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

[[noreturn]] void wrong_phase(const char* op, Phase phase, std::string_view due) {
  invalid_input(op, "not in phase {}; call {}", to_string(phase), due);
}

ByteView bytes_of_doubles(std::span<const double> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace

std::string_view to_string(Phase phase) noexcept {
  constexpr std::array<std::string_view, 3> names = {"CALIBRATION", "LEARNING", "INTERLEAVING"};
  return names[static_cast<std::size_t>(phase) - 1];
}

MemoryPair::MemoryPair(std::size_t dimension, std::shared_ptr<PrivacyOdometer> odometer,
                       Calibrator calibrator, Loss loss, NoiseSource noise)
    : odometer_(std::move(odometer)),
      calibrator_(std::move(calibrator)),
      loss_(loss),
      noise_(std::move(noise)),
      lbfgs_(dimension),
      theta_(dimension),
      comparator_(dimension) {
  if (!odometer_) {
    invalid_input("MemoryPair", "the odometer is null; pass one");
  }
  if (odometer_->status() != "not finalized") {
    invalid_input("MemoryPair", "the odometer is already finalized; pass a new one");
  }
  if (odometer_->certified()) {
    loss_ = odometer_->options().enforced.loss;
    if (odometer_->options().enforced.dimension != dimension) {
      invalid_input("MemoryPair", "dimension is {}, but that of the odometer is {}", dimension,
                    odometer_->options().enforced.dimension);
    }
    // A release of the pair is its prediction; noised releases are StreamEngine's.
    if (odometer_->guarantee() == Guarantee::kTranscript) {
      invalid_input("MemoryPair",
                    "predictions have no noise, so there is no transcript guarantee; use "
                    "StreamEngine::publish or another guarantee");
    }
    stream_.emplace(odometer_, noise_.fork("stream"));
  }
  odometer_->begin_warmup();
}

std::span<const double> MemoryPair::theta() const noexcept {
  return stream_ ? stream_->theta() : std::span<const double>(theta_);
}

MemoryPair::Key MemoryPair::key_of(std::span<const double> x, double y) const {
  Sha256 hash;
  hash.update(bytes_of_doubles(x)).update(bytes_of_doubles({&y, 1}));
  const Digest digest = hash.finish();
  return {digest.begin(), digest.end()};
}

std::vector<double> MemoryPair::gradient_at(std::span<const double> theta,
                                            std::span<const double> x, double y) const {
  std::vector<double> gradient(x.begin(), x.end());
  const double slope = loss_slope(loss_, y, numerics::dot(theta, x));
  for (double& v : gradient) v *= slope;
  return gradient;
}

double MemoryPair::step(std::span<const double> x, double y, bool observe) {
  require_record("MemoryPair", theta_.size(), x, y);
  label_within("MemoryPair", loss_, y, INFINITY);
  const double prediction = numerics::dot(theta(), x);
  const std::vector<double> gradient = gradient_at(theta(), x, y);
  if (stream_) {
    if (observe) calibrator_.observe(gradient, theta());
    stream_->insert(next_id_, x, y);
  } else {
    const double size = numerics::norm_l2(x);
    const double eta =
        1 / (std::sqrt(static_cast<double>(inserts_seen_ + 1)) * std::max(1.0, size * size));
    std::vector<double> change = lbfgs_.direction(gradient);
    for (double& v : change) v *= eta;
    std::vector<double> next = theta_;
    numerics::scaled_add(1, change, next);
    if (!std::isfinite(numerics::norm_l2(next)) || !std::isfinite(prediction)) {
      invalid_input("MemoryPair", "the step exceeds the range of binary64; scale the features");
    }
    std::vector<double> bend = gradient_at(next, x, y);
    numerics::scaled_add(-1, gradient, bend);
    numerics::scaled_add(odometer_->options().lambda, change, bend);
    if (observe) calibrator_.observe(gradient, next);
    lbfgs_.update(change, bend);
    theta_ = std::move(next);
  }
  live_[key_of(x, y)].push_back(next_id_++);
  ++events_seen_;
  ++inserts_seen_;
  return prediction;
}

double MemoryPair::calibrate_step(std::span<const double> x, double y) {
  if (phase_ == Phase::kLearning) wrong_phase("calibrate_step", phase_, "insert");
  if (phase_ == Phase::kInterleaving) {
    wrong_phase("calibrate_step", phase_, "insert or delete, or revert_to_calibration first");
  }
  return step(x, y, true);
}

const CalibrationStats& MemoryPair::finalize_calibration(double gamma_learn) {
  if (phase_ != Phase::kCalibration) {
    wrong_phase("finalize_calibration", phase_, "insert, or revert_to_calibration first");
  }
  CalibrationStats stats = calibrator_.finalize(gamma_learn, lbfgs_.bounds());
  if (stream_) {
    const StreamConstants& k = odometer_->options().enforced;
    stats.constants = {k.G_f, k.D, 1, 1};
    stats.N_star = certified_sample_complexity(k, gamma_learn);
    stats.warnings.clear();
  }
  finalize_calibration(std::move(stats));
  gamma_learn_ = gamma_learn;
  return stats_;
}

const CalibrationStats& MemoryPair::finalize_calibration(CalibrationStats stats) {
  if (phase_ != Phase::kCalibration) {
    wrong_phase("finalize_calibration", phase_, "insert, or revert_to_calibration first");
  }
  if (stats.N_star < 1) {
    invalid_input("finalize_calibration", "N_star is 0; it must be at least 1");
  }
  stats_ = std::move(stats);
  N_star_ = stats_.N_star;
  gamma_learn_.reset();
  if (stream_) calibrator_.clear();
  enter(Phase::kLearning);
  finish_warmup();
  return stats_;
}

void MemoryPair::finish_warmup() {
  if (phase_ != Phase::kLearning || inserts_seen_ < *N_star_) return;
  ready_to_predict_ = true;
  odometer_->end_warmup();
  enter(Phase::kInterleaving);
}

double MemoryPair::insert(std::span<const double> x, double y) {
  if (phase_ == Phase::kCalibration) {
    wrong_phase("insert", phase_, "calibrate_step, then finalize_calibration");
  }
  // The bound of certified modes is for the regularised loss.
  const double half = stream_ ? odometer_->options().lambda / 2 : 0;
  const double size = numerics::dot(theta(), theta());
  const double prediction = step(x, y, false);
  cumulative_regret_ += loss_value(loss_, y, prediction) -
                        loss_value(loss_, y, numerics::dot(comparator_, x)) +
                        half * (size - numerics::dot(comparator_, comparator_));
  finish_warmup();
  return prediction;
}

void MemoryPair::erase(std::span<const double> x, double y) {
  if (phase_ == Phase::kCalibration) {
    wrong_phase("delete", phase_, "finalize_calibration, then insert until ready_to_predict");
  }
  if (phase_ == Phase::kLearning) {
    wrong_phase("delete", phase_, "insert until ready_to_predict, then odometer.finalize_with");
  }
  require_record("MemoryPair", theta_.size(), x, y);
  const auto found = live_.find(key_of(x, y));
  if (found == live_.end()) {
    invalid_input("delete",
                  "this record is not in the model: it was never inserted, or is already deleted");
  }
  if (!odometer_->ready_to_delete()) {
    budget_exceeded("delete", "Odometer not finalized or capacity depleted.");
  }
  const RecordId id = found->second.back();
  if (stream_) {
    stream_->erase({&id, 1});
  } else {
    // Back along the direction an insert would take now, under noise: the specification's d.
    std::vector<double> next = theta_;
    const double size = numerics::norm_l2(x);
    const double eta =
        1 / (std::sqrt(static_cast<double>(inserts_seen_)) * std::max(1.0, size * size));
    numerics::scaled_add(-eta, lbfgs_.direction(gradient_at(theta_, x, y)), next);
    odometer_->spend();
    noise_.add(odometer_->noise_scale(), next);
    theta_ = std::move(next);
  }
  found->second.pop_back();
  if (found->second.empty()) live_.erase(found);
  ++events_seen_;
  ++deletes_seen_;
}

Prediction MemoryPair::predict(std::span<const double> x) const {
  require_record("MemoryPair", theta_.size(), x, 0);
  return {numerics::dot(theta(), x), can_predict()};
}

void MemoryPair::revert_to_calibration() {
  if (phase_ == Phase::kCalibration) return;
  calibrator_.clear();
  stats_ = {};
  N_star_.reset();
  gamma_learn_.reset();
  ready_to_predict_ = false;
  odometer_->begin_warmup();
  enter(Phase::kCalibration);
}

void MemoryPair::enter(Phase phase) {
  const Phase from = std::exchange(phase_, phase);
  if (hook_) hook_(from, phase);
}

void MemoryPair::use_noise(NoiseSource noise) {
  if (stream_) stream_->use_noise(noise.fork("stream"));
  noise_ = std::move(noise);
}

void MemoryPair::set_comparator(std::vector<double> theta) {
  require_record("set_comparator", theta_.size(), theta, 0);
  comparator_ = std::move(theta);
}

std::optional<double> MemoryPair::sensitivity() const {
  if (!stream_) return std::nullopt;
  return stream_->sensitivity();
}

double MemoryPair::avg_regret_empirical() const noexcept {
  return events_seen_ == 0 ? 0 : cumulative_regret_ / static_cast<double>(events_seen_);
}

std::map<std::string, MemoryPair::Metric> MemoryPair::metrics() const {
  const PrivacyOdometer& o = *odometer_;
  const Constants& k = stats_.constants;
  const auto& options = o.options();
  double bound = 0;
  if (events_seen_ > 0) {
    const LiteralTarget target{options.eps_total, options.delta_total, options.lambda,
                               options.delta_B,   events_seen_,        options.gamma_priv};
    const double learning =
        stream_ ? learning_regret(options.enforced, inserts_seen_) : insertion_regret(k, target);
    double deleting = 0;
    if (!stream_) {
      deleting = deletion_regret(k, target, deletes_seen_);
    } else if (o.deletes_before() > 0) {
      deleting = INFINITY;  // their noise was of an earlier calibration: no bound is known
    } else if (o.rho_step() > 0) {
      // C4 of stream.md, every delete as early as the last solution allows: d G_f^2 / (4 lambda s
      // rho).
      deleting = static_cast<double>(deletes_seen_ * theta_.size()) * options.enforced.G_f *
                 o.sigma_step() / (2 * std::sqrt(2 * o.rho_step()));
    }
    bound = (learning + deleting) / static_cast<double>(events_seen_);
  }
  return {
      {"N_star_theory", N_star_.value_or(0)},
      {"m_theory", o.m()},
      {"eps_step_theory", o.eps_step()},
      {"delta_step_theory", o.delta_step()},
      {"sigma_step_theory", o.sigma_step()},
      {"G_hat", k.G},
      {"D_hat", k.D},
      {"c_hat", k.c},
      {"C_hat", k.C},
      {"avg_regret_empirical", avg_regret_empirical()},
      {"avg_regret_bound", bound},
      {"avg_regret_within_bound", avg_regret_empirical() <= bound},
      {"phase", std::string(to_string(phase_))},
      {"eps_spent", o.eps_spent()},
      {"capacity_remaining", o.remaining()},
      {"gamma_learn", gamma_learn_.value_or(options.gamma_learn)},
      {"gamma_priv", options.gamma_priv},
      {"quantile", calibrator_.options().quantile},
      {"D_cap", calibrator_.options().D_cap.value_or(INFINITY)},
      {"accounting", std::string(to_string(options.accounting))},
      {"guarantee", std::string(to_string(o.guarantee()))},
      {"status", std::string(o.status())},
      {"events_seen", events_seen_},
      {"inserts_seen", inserts_seen_},
      {"deletes_seen", deletes_seen_},
  };
}

}  // namespace discreet::unlearning
