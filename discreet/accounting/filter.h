#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"

// Filters and an odometer: budgets that stay valid when each step's noise is chosen after seeing
// the earlier releases.
//
// A step that, given everything released before it, has Rényi divergence at most r_t (at a fixed
// order a > 1, in both directions) *spends* r_t. The spend may depend on earlier releases but on
// nothing else. If a run goes on only while r_1 + ... + r_t <= B, then all of it is (a, B)-RDP
// (Feldman and Zrnic 2021); likewise with zCDP and rho_t. No such theorem holds for PLD or
// trade-off curves, which is why there is no filter of those kinds here, and why a filter is never
// mixed with them.
//
// Rounding: a spend is taken as given (round it up); running sums are compensated and rounded up.
// Proof: filter.md
namespace discreet::accounting {

// A running sum of non-negative numbers that is never below the true sum. Its excess stays below
// 2^-52 of the sum plus n 2^-105 of it, whatever the number n of terms.
class SumRoundedUp {
 public:
  void add(double term) noexcept;
  double upper() const noexcept;
  // The state, and back; kMalformed for two numbers that no sum leaves.
  cbor::Value to_cbor() const;
  static SumRoundedUp from_cbor(const cbor::Value& value);
  friend bool operator==(const SumRoundedUp&, const SumRoundedUp&) = default;

 private:
  double high_ = 0;
  double low_ = 0;
};

// Several Rényi orders at once; one order is the common case. The run may go on while at least one
// order is within its budget; with k orders each converts at delta / k (a union bound, filter.md).
class RdpFilter {
 public:
  // Budgets B_i chosen so that (orders[i], B_i)-RDP gives (epsilon, delta / k)-DP, rounded down; 0,
  // which admits nothing, for an order that cannot reach epsilon. orders: each > 1, at least one.
  // epsilon > 0, delta in (0, 1). Throws kInvalidDpConfig otherwise, and when no order can reach
  // epsilon at that delta.
  RdpFilter(std::span<const double> orders, double epsilon, double delta);

  // divergences[i] >= 0: what the next step spends at orders[i]; +inf where nothing is known.
  // False if the step would exceed the budget of every order. Throws kInvalidInput for a NaN, a
  // negative value or a wrong length.
  bool admits(std::span<const double> divergences) const;
  // Records the step. Throws kPrivacyBudgetExceeded, state unchanged, if it is not admitted: call
  // this before the step is released.
  void spend(std::span<const double> divergences);

  std::span<const double> orders() const noexcept { return orders_; }
  std::span<const double> budgets() const noexcept { return budgets_; }
  // Spent at orders()[i], rounded up.
  double spent(std::size_t i) const { return spent_.at(i).upper(); }
  // Deterministic CBOR, and back bit for bit; kMalformed for anything else. The same for the
  // classes below. A restored filter goes on where the saved one stopped: never restore an older
  // state.
  Bytes save() const;
  static RdpFilter restore(ByteView bytes);
  friend bool operator==(const RdpFilter&, const RdpFilter&) = default;

 private:
  RdpFilter() = default;
  void check(std::span<const double> divergences) const;
  std::vector<double> orders_;
  std::vector<double> budgets_;
  std::vector<SumRoundedUp> spent_;
};

// Concentrated DP: a step of zCDP parameter rho_t (1/(2 sigma^2) for a Gaussian or discrete
// Gaussian) spends rho_t. The sum covers every order at once, so no union bound is paid.
class ZcdpFilter {
 public:
  // budget: rho > 0. Throws kInvalidDpConfig otherwise.
  explicit ZcdpFilter(double budget);
  // The largest rho that gives (epsilon, delta)-DP, rounded down.
  static ZcdpFilter for_target(double epsilon, double delta);

  bool admits(double rho) const;  // rho >= 0; kInvalidInput otherwise
  void spend(double rho);         // throws kPrivacyBudgetExceeded before the step, state unchanged
  double budget() const noexcept { return budget_; }
  double spent() const noexcept { return spent_.upper(); }
  // The claim for the whole run, whenever it ends: epsilon of the budget, not of what was spent.
  double epsilon(double delta) const;
  Bytes save() const;
  static ZcdpFilter restore(ByteView bytes);
  friend bool operator==(const ZcdpFilter&, const ZcdpFilter&) = default;

 private:
  double budget_;
  SumRoundedUp spent_;
};

// One filter per record with one double each. The spends are per record (a record whose clipped
// norm is small spends little); a record that cannot afford a step is left out of it and spends
// nothing, and may take part again in a cheaper step. A record's spend must be a function of the
// earlier releases and of that record alone, never of other records, and noise and denominators
// must not depend on who is active (filter.md, T3). Spends and the set of active records are
// data-dependent: they steer the run and are never published.
class IndividualFilters {
 public:
  // budget: B > 0, the same for all (an RDP budget at a fixed order, or a rho).
  IndividualFilters(std::size_t records, double budget);
  // Continues from saved spends, each in [0, budget]; kMalformed otherwise.
  IndividualFilters(std::vector<double> spent, double budget);

  // For every record i: if spent_i + spends[i], rounded up, is within the budget, it is recorded
  // and active[i] = 1; otherwise active[i] = 0 and nothing changes for i. Returns how many are
  // active. spends and active have one entry per record. Throws kInvalidInput for a NaN, a negative
  // spend or a wrong length; nothing has changed then.
  std::size_t update(std::span<const double> spends, std::span<std::uint8_t> active);
  // The same for a batch: records[k] spends spends[k]; each record at most once (kInvalidInput). If
  // the batch was drawn by coins, only its members spend, so a spend is the divergence *without*
  // amplification; with amplification every record spends in every step (filter.md).
  std::size_t update(std::span<const std::uint64_t> records, std::span<const double> spends,
                     std::span<std::uint8_t> active);

  std::span<const double> spent() const noexcept { return spent_; }
  double budget() const noexcept { return budget_; }

 private:
  std::vector<double> spent_;
  double budget_;
};

// A bound on the privacy loss that holds at all times at once, hence also at a time chosen from the
// releases: with probability at least 1 - delta, for every t, loss_t <= epsilon() as of time t (in
// each direction of the adjacency). Phase f = 1, 2, ... has the zCDP budget first_budget * 2^(f-1)
// and the share 6 delta / (pi^2 f^2) of delta; epsilon() is the bound of the phase that holds the
// sum, so it moves in steps: at most about sqrt 2 above a bound for the sum itself, plus the
// share's logarithm.
class ZcdpOdometer {
 public:
  // first_budget: rho of the first phase, > 0; delta in (0, 1). Throws kInvalidDpConfig otherwise.
  ZcdpOdometer(double first_budget, double delta);
  void spend(double rho);  // rho >= 0 finite; kInvalidInput otherwise
  double spent() const noexcept { return spent_.upper(); }
  double delta() const noexcept { return delta_; }
  int phase() const noexcept;
  double epsilon() const;  // rounded up; 0 before the first spend
  Bytes save() const;
  static ZcdpOdometer restore(ByteView bytes);
  friend bool operator==(const ZcdpOdometer&, const ZcdpOdometer&) = default;

 private:
  double first_budget_;
  double delta_;
  SumRoundedUp spent_;
};

}  // namespace discreet::accounting
