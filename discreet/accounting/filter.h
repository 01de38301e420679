#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"

// Filters and an odometer: budgets that remain valid if the noise of each step is chosen after
// seeing earlier releases.
//
// Suppose a step, given everything released before it, has Rényi divergence at most r_t at a fixed
// order a > 1 in both directions. Then the step *spends* r_t. The spend may depend on earlier
// releases but on nothing else. If a run continues only while r_1 + ... + r_t <= B, then the whole
// run is (a, B)-RDP (Feldman and Zrnic 2021); the same holds for zCDP with rho_t. No such theorem
// holds for PLDs or trade-off curves, so there are no filters of these kinds, and a filter must not
// be combined with them.
//
// Rounding: the caller rounds each spend up; running sums are compensated and rounded up.
// Proof: filter.md
namespace discreet::accounting {

// A running sum of non-negative numbers that is never below the true sum. Its relative excess is at
// most 2^-52 + n 2^-105 for n terms.
class SumRoundedUp {
 public:
  void add(double term) noexcept;
  double upper() const noexcept;
  // Saves and restores the state. from_cbor throws kMalformed for two numbers that no sum produces.
  cbor::Value to_cbor() const;
  static SumRoundedUp from_cbor(const cbor::Value& value);
  friend bool operator==(const SumRoundedUp&, const SumRoundedUp&) = default;

 private:
  double high_ = 0;
  double low_ = 0;
};

// Filters at one or several Rényi orders; usually one. The run may continue while at least one
// order is within its budget. With k orders, each converts at delta / k (a union bound, filter.md).
class RdpFilter {
 public:
  // Budgets B_i such that (orders[i], B_i)-RDP implies (epsilon, delta / k)-DP, rounded down. An
  // order that cannot reach epsilon gets budget 0, which admits nothing. orders: at least one, each
  // > 1. epsilon > 0, delta in (0, 1). Throws kInvalidDpConfig otherwise, and if no order can reach
  // epsilon at that delta.
  RdpFilter(std::span<const double> orders, double epsilon, double delta);

  // False if the step would exceed the budget of every order. divergences[i] >= 0 is the spend of
  // the next step at orders[i]; +inf if unknown. Throws kInvalidInput for a NaN, a negative value
  // or a wrong length.
  bool admits(std::span<const double> divergences) const;
  // Records the step; call this before the step is released. If the step is not admitted, throws
  // kPrivacyBudgetExceeded and the state is unchanged.
  void spend(std::span<const double> divergences);

  std::span<const double> orders() const noexcept { return orders_; }
  std::span<const double> budgets() const noexcept { return budgets_; }
  // The spend at orders()[i], rounded up.
  double spent(std::size_t i) const { return spent_.at(i).upper(); }
  // Deterministic CBOR; restore is exact to the bit and throws kMalformed for anything else. The
  // same holds for the classes below. A restored filter continues where the saved one stopped, so
  // never restore an outdated state.
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

// Concentrated DP: a step with zCDP parameter rho_t (1/(2 sigma^2) for a Gaussian or discrete
// Gaussian) spends rho_t. The sum covers all orders at once, so there is no union bound.
class ZcdpFilter {
 public:
  // budget: rho > 0. Throws kInvalidDpConfig otherwise.
  explicit ZcdpFilter(double budget);
  // The largest rho that gives (epsilon, delta)-DP, rounded down.
  static ZcdpFilter for_target(double epsilon, double delta);

  bool admits(double rho) const;  // rho >= 0, otherwise kInvalidInput
  void spend(double rho);         // before the release; kPrivacyBudgetExceeded, state unchanged
  double budget() const noexcept { return budget_; }
  double spent() const noexcept { return spent_.upper(); }
  // The epsilon of the budget, not of the spend: the claim for the whole run, whenever it stops.
  double epsilon(double delta) const;
  Bytes save() const;
  static ZcdpFilter restore(ByteView bytes);
  friend bool operator==(const ZcdpFilter&, const ZcdpFilter&) = default;

 private:
  double budget_;
  SumRoundedUp spent_;
};

// One filter per record, stored as one double each. Spends differ between records: a record with a
// small clipped norm spends little. A record that cannot afford a step is left out and spends
// nothing; it may take part again in a cheaper step. A record's spend must depend only on earlier
// releases and on that record, never on other records; noise and denominators must not depend on
// which records are active (filter.md, T3). Spends and the set of active records depend on the
// data: they control the run and must never be published.
class IndividualFilters {
 public:
  // budget: B > 0, equal for all records (an RDP budget at a fixed order, or a rho).
  IndividualFilters(std::size_t records, double budget);
  // Continues from saved spends, each in [0, budget], otherwise kMalformed.
  IndividualFilters(std::vector<double> spent, double budget);

  // For every record i: if spent_i + spends[i], rounded up, is within the budget, records the spend
  // and sets active[i] = 1; otherwise sets active[i] = 0 and leaves the record unchanged. Returns
  // the number of active records. spends and active have one entry per record. Throws kInvalidInput
  // for a NaN, a negative spend or a wrong length; nothing has changed then.
  std::size_t update(std::span<const double> spends, std::span<std::uint8_t> active);
  // The same for a batch: records[k] spends spends[k]. A record that occurs twice is kInvalidInput.
  // If the batch was sampled at random, only its members spend, so the spend must be the divergence
  // *without* amplification; with amplification, every record spends in every step (filter.md).
  std::size_t update(std::span<const std::uint64_t> records, std::span<const double> spends,
                     std::span<std::uint8_t> active);

  std::span<const double> spent() const noexcept { return spent_; }
  double budget() const noexcept { return budget_; }

 private:
  std::vector<double> spent_;
  double budget_;
};

// A bound on the privacy loss that holds at all times simultaneously, and hence at a time chosen
// from the releases: with probability at least 1 - delta, for every t, loss_t <= epsilon() at time
// t (in each direction of the adjacency). Phase f = 1, 2, ... has the zCDP budget first_budget *
// 2^(f-1) and the share 6 delta / (pi^2 f^2) of delta. epsilon() is the bound of the phase that
// contains the sum, so it increases in steps: it exceeds a bound for the sum itself by at most a
// factor of about sqrt 2, plus the logarithm of the share.
class ZcdpOdometer {
 public:
  // first_budget: rho of the first phase, > 0; delta in (0, 1). Throws kInvalidDpConfig otherwise.
  ZcdpOdometer(double first_budget, double delta);
  void spend(double rho);  // rho >= 0 finite, otherwise kInvalidInput
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
