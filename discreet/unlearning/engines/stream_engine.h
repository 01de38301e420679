#pragma once

#include <memory>
#include <unordered_set>

#include "discreet/unlearning/capacity/odometer.h"
#include "discreet/unlearning/engines/engine.h"
#include "discreet/unlearning/noise_source.h"

namespace discreet::unlearning {

// Online learning without keeping records. Insert t is one projected gradient step. A record moves
// the state at step s = t + t0 by at most a = G_f/(lambda s), plus rounding, which the
// implementation includes, whenever it was inserted. A delete adds Gaussian noise that covers a and
// projects again.
//
//   per-record  the state after the delete is rho_step-zCDP close to that of the run in which this
//               record's step had no gradient and everything else, including the noise schedule,
//               is the same
//   set-level   the same for all deleted records at once, after the last delete, at the sum of rho
//   transcript  per-record, and earlier noised releases may influence later requests
// The times of inserts and deletes are public. Records are scaled to norm R, labels clamped to Y
// (squared) and the derivatives of predictions clipped, so the bound holds for every input. The
// caller's ids are kept while live.
// Proof: stream.md
class StreamEngine final : public Engine {
 public:
  // odometer: certified, finalized before the first erase; shared with its readers. release_sigma:
  // noise of a release under kTranscript, > 0; otherwise ignored. Throws kInvalidInput for a null
  // or uncertified odometer.
  StreamEngine(std::shared_ptr<PrivacyOdometer> odometer, NoiseSource noise,
               double release_sigma = 0);

  std::string_view name() const noexcept override { return "stream"; }
  std::size_t dimension() const noexcept override { return theta_.size(); }
  std::uint64_t live() const noexcept override { return ids_.size(); }
  bool holds(RecordId id) const noexcept override { return ids_.count(id) > 0; }
  void insert(RecordId id, std::span<const double> x, double y) override;
  void erase(std::span<const RecordId> ids) override;
  // Per-record and set-level: the state itself; the promise holds against everyone who has it, for
  // requests fixed in advance. Transcript: the state with noise release_sigma, charged to the
  // reserve.
  Release publish() override;

  Bytes save(Records records) const override;
  // odometer: with its state at the time of saving.
  static StreamEngine restore(ByteView bytes, std::shared_ptr<PrivacyOdometer> odometer,
                              NoiseSource noise);
  // Marks a record as live that the restored state has learned.
  void adopt(RecordId id) { ids_.insert(id); }
  // Sets the source of further noise; its key must never have been used.
  void use_noise(NoiseSource noise) { noise_ = std::move(noise); }

  // Resets everything: theta = 0, no records, step 0. Later states are independent of everything
  // inserted before. The caller must restart the budgets (with a new odometer), except those of a
  // transcript.
  void reset() noexcept;

  // The state: confidential until published.
  std::span<const double> theta() const noexcept { return theta_; }
  std::uint64_t inserts() const noexcept { return t_; }
  // The maximum distance by which one record can have moved the state so far; rounded up.
  double sensitivity() const;

 private:
  double offset() const noexcept { return static_cast<double>(t_) + static_cast<double>(t0_); }
  void project() noexcept;

  std::shared_ptr<PrivacyOdometer> odometer_;
  StreamConstants k_;
  NoiseSource noise_;
  double release_sigma_;
  std::uint64_t t0_;
  double step_rounding_;  // e_r of stream.md
  std::uint64_t t_ = 0;
  double rounding_ = 0;  // s times what rounding can have added to the distance of two runs
  std::vector<double> theta_;
  std::unordered_set<RecordId> ids_;
};

// The derivative of the loss in the prediction z, and the loss itself.
double loss_slope(Loss loss, double y, double z) noexcept;
double loss_value(Loss loss, double y, double z) noexcept;

}  // namespace discreet::unlearning
