#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "discreet/accounting/renyi/rdp_conversion.h"
#include "discreet/accounting/tally_impl.h"

// Log-moments of events and of multisets of events, shared by `rdp` and `moments`.
namespace discreet::accounting {

// The curve of an event; throws `refuse(accountant, event)` if there is none. A shuffled epoch is
// one full-batch release (no amplification). A guarantee has the curve of its pure part, that of
// randomized response,
//   log((e^{a epsilon} + e^{(1-a) epsilon})/(1 + e^epsilon));
// its delta is charged separately (RenyiComposition::leak).
std::unique_ptr<RenyiCurve> renyi_curve(std::string_view accountant, const Event& event);

class RenyiComposition {
 public:
  RenyiComposition(std::string_view accountant, const EventCounts& events, bool log_space);
  // The log-moment of the whole composition at an order, rounded up.
  LogMoment at(double order);
  // The probability, rounded up, that some explicit event reveals everything: 1 - prod
  // (1-delta)^count.
  double leak() const noexcept { return leak_; }

 private:
  struct Part {
    std::unique_ptr<RenyiCurve> curve;
    double count;
  };
  std::vector<Part> parts_;
  double leak_ = 0;
  bool log_space_;
};

// minimise_epsilon and minimise_delta of the composition, including the leak: delta(epsilon) <=
// leak + (1 - leak) * delta of the rest. +inf if the leak uses up delta.
double renyi_epsilon(RenyiComposition& composition, double delta);
double renyi_delta(RenyiComposition& composition, double epsilon);

}  // namespace discreet::accounting
