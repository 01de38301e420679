#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "discreet/base/hash.h"
#include "discreet/unlearning/capacity/calibrator.h"
#include "discreet/unlearning/capacity/odometer.h"
#include "discreet/unlearning/engines/stream_engine.h"

namespace discreet::unlearning {

enum class Phase { kCalibration = 1, kLearning = 2, kInterleaving = 3 };
std::string_view to_string(Phase phase) noexcept;  // "CALIBRATION", "LEARNING", "INTERLEAVING"

// x'theta, and whether the model has seen the N* inserts that its regret target requires.
struct Prediction {
  double value;
  bool ready;
};

// The online learner of the specification and its order of calls:
//
//   CALIBRATION   calibrate_step (some hundred times), then finalize_calibration(gamma_learn)
//   LEARNING      insert until inserts_seen >= N*; then the phase changes automatically
//   INTERLEAVING  odometer->finalize_with(stats(), max_events), then insert and erase in any order
//
// A call in the wrong phase throws kInvalidInput and names the expected call.
//
// The steps depend on the odometer. `specification`: an L-BFGS step of length 1/(sqrt(t) max(1,
// |x|^2)); a delete steps back and adds N(0, sigma_step^2): not certified. Certified modes: a
// StreamEngine with the constants that the odometer enforces; L-BFGS is not used, N* is
// certified_sample_complexity, and the observations of calibration are erased when it ends.
// Parameters, metrics and statistics depend on the records: confidential.
class MemoryPair {
 public:
  // dimension: >= 1; in certified modes that of the odometer's enforced constants, which also
  // determine the loss. odometer: not finalized, shared with the caller.
  MemoryPair(std::size_t dimension, std::shared_ptr<PrivacyOdometer> odometer,
             Calibrator calibrator = Calibrator(), Loss loss = Loss::kSquared,
             NoiseSource noise = NoiseSource::secure());

  // CALIBRATION: one step on the record; the calibrator observes gradient and parameters. Returns
  // the prediction made before the step. Regret is not counted.
  double calibrate_step(std::span<const double> x, double y);

  // CALIBRATION -> LEARNING. gamma_learn > 0. The second form takes statistics from elsewhere, for
  // instance from several learners together; the log then states the odometer's gamma_learn.
  const CalibrationStats& finalize_calibration(double gamma_learn);
  const CalibrationStats& finalize_calibration(CalibrationStats stats);

  // LEARNING and INTERLEAVING: one step; returns the prediction made before it.
  double insert(std::span<const double> x, double y);

  // INTERLEAVING: deletes one live copy of the record. Throws kInvalidInput for a record that was
  // never inserted or is already deleted; kPrivacyBudgetExceeded if the odometer is not ready (a
  // service then retrains). If it throws, nothing is spent or changed.
  void erase(std::span<const double> x, double y);

  Prediction predict(std::span<const double> x) const;

  // Returns to CALIBRATION from any phase. Parameters, records and the odometer's spend are kept;
  // N* and the calibrator start again; after the next warm-up, call odometer->recalibrate.
  void revert_to_calibration();

  // The state, including the odometer, as deterministic CBOR, without the hook and the noise key.
  // kLeftOut: without the live records, which the caller adopts one by one after restoring. restore
  // throws kMalformed for other bytes.
  Bytes save(Records records) const;
  static MemoryPair restore(ByteView bytes, NoiseSource noise);
  void adopt(std::span<const double> x, double y);
  // Sets the source of further noise; its key must never have been used.
  void use_noise(NoiseSource noise);

  // hook: called with (from, to) after each change of phase, for coordinating several learners.
  void on_phase(std::function<void(Phase, Phase)> hook) { hook_ = std::move(hook); }

  // The fixed parameter against which regret is measured; zero until set. Finite. Certified modes
  // count the regularised loss, for which their bound holds where no slope was clipped.
  void set_comparator(std::vector<double> theta);

  Phase phase() const noexcept { return phase_; }
  bool ready_to_predict() const noexcept { return ready_to_predict_; }
  bool can_predict() const noexcept { return ready_to_predict_ && phase_ != Phase::kCalibration; }
  std::optional<std::uint64_t> N_star() const noexcept { return N_star_; }
  std::uint64_t events_seen() const noexcept { return events_seen_; }
  std::uint64_t inserts_seen() const noexcept { return inserts_seen_; }
  std::uint64_t deletes_seen() const noexcept { return deletes_seen_; }
  std::uint64_t live() const noexcept { return inserts_seen_ - deletes_seen_; }
  Loss loss() const noexcept { return loss_; }
  std::span<const double> theta() const noexcept;
  std::optional<CurvatureBounds> lbfgs_bounds() const { return lbfgs_.bounds(); }
  const CalibrationStats& stats() const noexcept { return stats_; }
  const Calibrator& calibrator() const noexcept { return calibrator_; }
  const PrivacyOdometer& odometer() const noexcept { return *odometer_; }
  PrivacyOdometer& odometer() noexcept { return *odometer_; }
  double avg_regret_empirical() const noexcept;
  // Certified modes: the maximum distance by which one record can have moved theta so far; rounded
  // up.
  std::optional<double> sensitivity() const;

  // The log of the specification: values by name.
  using Metric = std::variant<double, std::uint64_t, bool, std::string>;
  std::map<std::string, Metric> metrics() const;

 private:
  using Key = std::string;  // SHA-256 of the record
  Key key_of(std::span<const double> x, double y) const;
  double step(std::span<const double> x, double y, bool observe);
  std::vector<double> gradient_at(std::span<const double> theta, std::span<const double> x,
                                  double y) const;
  void enter(Phase phase);
  void finish_warmup();

  std::shared_ptr<PrivacyOdometer> odometer_;
  Calibrator calibrator_;
  Loss loss_;
  NoiseSource noise_;
  std::optional<StreamEngine> stream_;  // certified modes
  Lbfgs lbfgs_;
  std::vector<double> theta_;  // under kSpecification
  std::vector<double> comparator_;
  Phase phase_ = Phase::kCalibration;
  CalibrationStats stats_;
  std::optional<std::uint64_t> N_star_;
  std::optional<double> gamma_learn_;  // from which N_star_ follows; empty: of the odometer
  bool ready_to_predict_ = false;
  std::uint64_t events_seen_ = 0, inserts_seen_ = 0, deletes_seen_ = 0;
  double cumulative_regret_ = 0;
  std::unordered_map<Key, std::vector<RecordId>> live_;
  RecordId next_id_ = 0, adopted_ = 0;
  std::function<void(Phase, Phase)> hook_;
};

}  // namespace discreet::unlearning
