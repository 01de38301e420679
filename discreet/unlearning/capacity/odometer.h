#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/unlearning/capacity/calibrator.h"
#include "discreet/unlearning/capacity/rho_budget.h"
#include "discreet/unlearning/capacity/stream_bounds.h"

namespace discreet::unlearning {

enum class Accounting {
  kSpecification,  // the formulas of literal.h: not certified
  kZcdp,           // epsilon = rho + 2 sqrt(rho ln(1/delta))
  kRdp,            // the same rho, converted by the best Rényi order: tighter
  kGdp,            // mu = sqrt(2 rho), converted exactly: tightest. Requires shares fixed in
                   // advance: no transcript, no reserve, no recalibration after a delete
};

// Which records a certified delete protects, and against which observer. Do not mix them: a number
// computed for one supports no claim of another.
enum class Guarantee {
  kNotCertified,
  kPerRecord,   // each deleted record alone, against an observer of the state after its delete;
                // requests fixed in advance
  kSetLevel,    // all deleted records together, against an observer of the state after the last
                // delete; requests fixed in advance
  kTranscript,  // each deleted record alone, against an observer who also saw the earlier noised
                // releases; requests may depend on those releases
};

std::string_view to_string(Accounting accounting) noexcept;  // "specification", "zcdp", ...
std::string_view to_string(Guarantee guarantee) noexcept;    // "not certified", "per-record", ...

// The largest rho, rounded down, for which a sum of Gaussian shifts with total zCDP parameter rho
// is (eps, delta)-DP by this accounting. eps > 0, delta in (0, 1), accounting not kSpecification,
// otherwise kInvalidInput.
// Proof: odometer.md
double rho_of(Accounting accounting, double eps, double delta);

// The smallest epsilon at delta that rho supports by this accounting, rounded up.
double eps_of(Accounting accounting, double rho, double delta);

struct OdometerOptions {
  double eps_total = 1;
  double delta_total = 1e-5;
  double lambda = 0.1;
  double delta_B = 0.05;
  std::uint64_t T = 100000;   // planned events; finalize_with replaces it
  double gamma_learn = 0.05;  // average regret that N* aims at
  double gamma_priv = 0.05;   // average regret that the capacity aims at
  Accounting accounting = Accounting::kSpecification;
  // Certified modes only.
  Guarantee guarantee = Guarantee::kPerRecord;
  StreamConstants enforced{};  // its lambda must equal the one above
  double reserve = 0;          // share of the budget for noised releases and drift tests, [0, 1)
};

// The number of deletes that a privacy and a regret budget allow, and the noise that each needs.
//
// kSpecification: m, eps_step, delta_step and sigma_step as in literal.h, capacity max(1, m).
// Certified modes: m from stream_bounds.h at gamma_priv, which may be 0. Per-record and transcript:
// each delete gets the whole budget except the reserve; set-level: deletes share it equally.
// Strictly speaking this is a filter, not an odometer: the claim is always (eps_total,
// delta_total); eps_spent() reports progress.
// Proof: odometer.md
class PrivacyOdometer {
 public:
  // Throws kInvalidInput for a value out of its range.
  explicit PrivacyOdometer(OdometerOptions options);

  // Computes the capacity from now on. stats: of calibration (kSpecification); certified modes use
  // the enforced constants. T_estimate: planned events, >= 1. deletes_from: no delete happens
  // before this many inserts (certified modes; a later first delete needs less noise). Throws
  // kInvalidInput, changing nothing, if called twice (use `recalibrate`), or while a MemoryPair
  // that uses this odometer is still warming up.
  void finalize_with(const CalibrationStats& stats, std::uint64_t T_estimate,
                     std::uint64_t deletes_from = 1);

  // Computes the capacity again from the remaining budget: the spend never decreases, and without a
  // remainder the odometer is not ready. gdp rejects this after the first spend, because its shares
  // must be fixed in advance.
  void recalibrate(const CalibrationStats& stats, std::uint64_t T_estimate,
                   std::uint64_t deletes_from = 1);

  bool ready_to_delete() const noexcept { return finalized_ && remaining() > 0; }
  // Counts `deletes` >= 1 deletions, all or none. Throws kPrivacyBudgetExceeded "Odometer not
  // finalized or capacity depleted." if fewer are left. Call this, and make it durable, before the
  // change becomes visible.
  void spend(std::uint64_t deletes = 1);
  // Standard deviation of the noise of a delete. kSpecification: sigma_step. Certified: sensitivity
  // / sqrt(2 rho_step), rounded up; sensitivity >= 0 is the engine's bound.
  double noise_scale() const;
  double noise_scale(double sensitivity) const;

  // Charges a release or drift test of cost rho to the reserve. Throws kInvalidInput unless
  // certified per record or transcript, kPrivacyBudgetExceeded if less is left.
  void charge_reserve(double rho);

  // "not finalized", "ready", "degenerate" (capacity 1), "infeasible" (capacity 0), "exhausted".
  std::string_view status() const noexcept;
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  std::uint64_t m() const noexcept { return m_; }  // of the last solution, before max(1, m)
  std::uint64_t deletion_capacity() const noexcept { return capacity_; }
  std::uint64_t deletes() const noexcept { return deletes_; }                 // in total
  std::uint64_t deletes_before() const noexcept { return deletes_ - used_; }  // last recalibration
  std::uint64_t remaining() const noexcept { return capacity_ - used_; }
  double eps_step() const noexcept { return eps_step_; }
  double delta_step() const noexcept { return delta_step_; }
  double sigma_step() const noexcept { return sigma_step_; }
  // zCDP parameter of the next delete; 0 under kSpecification.
  double rho_step() const noexcept { return certified() ? share_ : 0; }
  double eps_spent() const;  // rounded up in certified modes
  // Shares of the total: rho, or the fraction of eps_total under kSpecification.
  const RhoBudget& budget() const noexcept { return budget_; }
  const RhoBudget& reserve() const noexcept { return reserve_; }
  Guarantee guarantee() const noexcept;
  const OdometerOptions& options() const noexcept { return options_; }
  bool certified() const noexcept { return options_.accounting != Accounting::kSpecification; }

  // The state as deterministic CBOR. restore throws kMalformed for other bytes, and for a state
  // with more budget than its options allow.
  Bytes save() const;
  static PrivacyOdometer restore(ByteView bytes);

  // Called by MemoryPair: finalize_with and recalibrate are rejected between the two.
  void begin_warmup() noexcept { warming_ = true; }
  void end_warmup() noexcept { warming_ = false; }

 private:
  void require_warm() const;
  void solve(const CalibrationStats& stats, std::uint64_t T, std::uint64_t deletes_from);

  OdometerOptions options_;
  RhoBudget budget_;
  RhoBudget reserve_;
  bool finalized_ = false;
  bool warming_ = false;
  std::uint64_t m_ = 0, capacity_ = 0, used_ = 0, deletes_ = 0;
  double eps_step_ = 0, delta_step_ = 0, sigma_step_ = 0, share_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace discreet::unlearning
