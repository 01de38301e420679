#include "python/src/accounting.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "discreet/accounting/calibrate.h"
#include "discreet/accounting/group_privacy.h"
#include "discreet/accounting/pld.h"
#include "python/src/rooms.h"

namespace discreet::python {

using namespace nb::literals;

namespace {

using namespace discreet::accounting;

// A sampling rate of 1 is the full batch, whatever the name of the sampler.
Event gaussian_event(double sampling_rate, double noise_multiplier, Adjacency adjacency) {
  if (sampling_rate == 1) return Event(Gaussian{noise_multiplier}, NoSampling{}, adjacency);
  return Event(Gaussian{noise_multiplier}, Poisson{sampling_rate}, adjacency);
}

}  // namespace

Result result_of(const Certified& certified) {
  return {certified.value.lower, certified.value.upper, std::string(to_string(certified.path)),
          std::string(to_string(certified.worst))};
}

void add_accounting(nb::module_& m) {
  add_events(m);
  add_accountants(m);
  add_filters(m);
  add_amplification(m);

  nb::class_<PldAccountant>(m, "PldAccountant")
      .def(
          "__init__",
          [](PldAccountant* self, const std::string& adjacency) {
            new (self) PldAccountant(adjacency_named(adjacency));
          },
          "adjacency"_a)
      .def(
          "add",
          [](PldAccountant& self, double sampling_rate, double noise_multiplier,
             std::uint64_t steps) {
            self.add(gaussian_event(sampling_rate, noise_multiplier, self.adjacency()), steps);
          },
          "sampling_rate"_a, "noise_multiplier"_a, "steps"_a)
      .def(
          "epsilon",
          [](const PldAccountant& self, double delta) { return result_of(self.epsilon(delta)); },
          "delta"_a)
      .def(
          "verify",
          [](const PldAccountant& self, double delta) { return result_of(self.verify(delta)); },
          "delta"_a)
      .def(
          "delta",
          [](const PldAccountant& self, double epsilon) { return result_of(self.delta(epsilon)); },
          "epsilon"_a)
      .def(
          "group_epsilon",
          [](const PldAccountant& self, double delta, std::uint64_t group) {
            return result_of(group_epsilon(self.events(), group, delta));
          },
          "delta"_a, "group_size"_a)
      .def(
          "group_delta",
          [](const PldAccountant& self, double epsilon, std::uint64_t group) {
            return result_of(group_delta(self.events(), group, epsilon));
          },
          "epsilon"_a, "group_size"_a)
      .def(
          "would_exceed",
          [](const PldAccountant& self, double sampling_rate, double noise_multiplier,
             std::uint64_t steps, double target_epsilon, double delta) {
            return self.would_exceed(
                gaussian_event(sampling_rate, noise_multiplier, self.adjacency()), steps,
                target_epsilon, delta);
          },
          "sampling_rate"_a, "noise_multiplier"_a, "steps"_a, "target_epsilon"_a, "delta"_a)
      .def("save", [](const PldAccountant& self) { return to_bytes(self.save()); })
      .def_static(
          "restore", [](const nb::bytes& saved) { return PldAccountant::restore(view(saved)); },
          "saved"_a)
      .def_prop_ro("steps", &PldAccountant::steps)
      .def_prop_ro("adjacency", [](const PldAccountant& self) {
        return std::string(to_string(self.adjacency()));
      });

  // Each returns (setting, result, proven).
  m.def(
      "calibrate_noise_multiplier",
      [](double rate, std::uint64_t steps, double epsilon, double delta, std::uint64_t group) {
        const auto found = calibrate_noise_multiplier(rate, steps, {epsilon, delta, group});
        return std::tuple(found.value, result_of(found.reached), found.proven);
      },
      "sampling_rate"_a, "steps"_a, "target_epsilon"_a, "delta"_a, "group_size"_a = 1);
  m.def(
      "calibrate_steps",
      [](double rate, double noise_multiplier, double epsilon, double delta, std::uint64_t group) {
        const auto found = calibrate_steps(rate, noise_multiplier, {epsilon, delta, group});
        return std::tuple(found.value, result_of(found.reached), found.proven);
      },
      "sampling_rate"_a, "noise_multiplier"_a, "target_epsilon"_a, "delta"_a, "group_size"_a = 1);
  m.def(
      "calibrate_rate",
      [](double noise_multiplier, std::uint64_t steps, double epsilon, double delta,
         std::uint64_t group) {
        const auto found = calibrate_rate(noise_multiplier, steps, {epsilon, delta, group});
        return std::tuple(found.value, result_of(found.reached), found.proven);
      },
      "noise_multiplier"_a, "steps"_a, "target_epsilon"_a, "delta"_a, "group_size"_a = 1);
}

}  // namespace discreet::python
