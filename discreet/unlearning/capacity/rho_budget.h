#pragma once

#include <cstdint>

#include "discreet/base/cbor.h"

namespace discreet::unlearning {

// A total that can be spent and never grows, in integer units of 2^-44, so that sums are exact.
// Totals and quotients are rounded down, charges up; spent <= total after every sequence of calls.
// Proof: odometer.md
class RhoBudget {
 public:
  static constexpr double kUnit = 0x1p-44;
  static constexpr double kLimit = 512;  // larger totals are reduced to this

  // total >= 0, rounded down. Throws kInvalidInput for a negative total or a NaN.
  explicit RhoBudget(double total);

  bool admits(double amount) const;
  // If less is left, throws kPrivacyBudgetExceeded and changes nothing; kInvalidInput for a
  // negative amount or a NaN.
  void charge(double amount);
  // The largest amount that can be charged `parts` times; 0 if that is less than a unit. parts >=
  // 1.
  double share(std::uint64_t parts) const;

  cbor::Value save() const;
  // Throws kMalformed for anything but a budget.
  static RhoBudget restore(const cbor::Value& value);

  // Exact multiples of kUnit.
  double total() const noexcept { return static_cast<double>(total_) * kUnit; }
  double spent() const noexcept { return static_cast<double>(spent_) * kUnit; }
  double left() const noexcept { return static_cast<double>(total_ - spent_) * kUnit; }

 private:
  std::uint64_t total_;
  std::uint64_t spent_ = 0;
};

}  // namespace discreet::unlearning
