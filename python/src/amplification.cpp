#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>
#include <vector>

#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/accounting/sampling/fixed_size.h"
#include "discreet/accounting/sampling/shuffle.h"
#include "discreet/accounting/sampling/shuffle_model.h"
#include "discreet/accounting/sampling/truncated_poisson.h"
#include "discreet/base/error.h"
#include "python/src/accounting.h"
#include "python/src/gil.h"

namespace discreet::python {

using namespace discreet::accounting;
using namespace nb::literals;

namespace {

using Pair = std::pair<double, double>;  // lower, upper
using Schedule = std::vector<std::tuple<double, std::uint64_t, std::uint64_t>>;
using WithoutLock = nb::call_guard<Unlocked>;

Pair pair_of(const Interval& interval) { return {interval.lower, interval.upper}; }

Direction direction_named(const std::string& text) {
  if (text == "remove") return Direction::kRemove;
  if (text == "add") return Direction::kAdd;
  invalid_input("direction",
                "direction is '{}'; it must be remove, add, or empty for the worse of both", text);
}

std::vector<AllocationEpochs> epochs_of(const Schedule& schedule) {
  std::vector<AllocationEpochs> epochs;
  for (const auto& [sigma, batches, count] : schedule) epochs.push_back({sigma, batches, count});
  return epochs;
}

}  // namespace

// An empty direction is the worse of both.
void add_amplification(nb::module_& m) {
  m.def(
      "allocation_epsilon",
      [](const Schedule& schedule, double delta, const std::string& direction, double width) {
        const auto epochs = epochs_of(schedule);
        return pair_of(direction.empty()
                           ? allocation_epsilon(epochs, delta, width)
                           : allocation_epsilon(epochs, delta, direction_named(direction), width));
      },
      "schedule"_a, "delta"_a, "direction"_a, "relative_width"_a, WithoutLock());
  m.def(
      "allocation_delta",
      [](const Schedule& schedule, double epsilon, const std::string& direction, double width) {
        return pair_of(
            allocation_delta(epochs_of(schedule), epsilon, direction_named(direction), width));
      },
      "schedule"_a, "epsilon"_a, "direction"_a, "relative_width"_a, WithoutLock());
  m.def(
      "fixed_size_replace_one_epsilon",
      [](double rate, double sigma, std::uint64_t steps, double delta, double width) {
        return pair_of(fixed_size_replace_one_epsilon({rate, sigma, steps}, delta, width));
      },
      "sampling_rate"_a, "noise_multiplier"_a, "steps"_a, "delta"_a, "relative_width"_a,
      WithoutLock());
  m.def(
      "shuffle_epsilon",
      [](double sigma, std::uint64_t batches, std::uint64_t epochs, double delta,
         bool replace_one) {
        const ShuffledEpochs shuffled{sigma, batches, epochs};
        return pair_of(replace_one ? shuffle_replace_one_epsilon(shuffled, delta)
                                   : shuffle_zero_out_epsilon(shuffled, delta));
      },
      "noise_multiplier"_a, "batches"_a, "epochs"_a, "delta"_a, "replace_one"_a, WithoutLock());
  m.def(
      "truncated_poisson_epsilon",
      [](double rate, std::uint64_t batch, std::uint64_t population, double sigma,
         std::uint64_t steps, double delta, const std::string& direction, double width) {
        return pair_of(truncated_poisson_epsilon({rate, batch, population, sigma, steps}, delta,
                                                 direction_named(direction), width));
      },
      "sampling_rate"_a, "batch"_a, "population"_a, "noise_multiplier"_a, "steps"_a, "delta"_a,
      "direction"_a, "relative_width"_a, WithoutLock());
  m.def(
      "shuffle_model_epsilon",
      [](std::uint64_t records, double epsilon0, double delta0, double delta) {
        return pair_of(shuffle_epsilon({records, epsilon0, delta0}, delta));
      },
      "records"_a, "epsilon0"_a, "delta0"_a, "delta"_a, WithoutLock());
}

}  // namespace discreet::python
