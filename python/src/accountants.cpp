#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <optional>
#include <tuple>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/group_privacy.h"
#include "python/src/accounting.h"

namespace discreet::python {

using namespace discreet::accounting;
using namespace nb::literals;

void add_accountants(nb::module_& m) {
  nb::class_<Accountant>(m, "Accountant")
      .def("compose", &Accountant::compose, "event"_a, "count"_a)
      // (lower, upper, what the central limit theorem says)
      .def(
          "epsilon",
          [](const Accountant& self, double delta) {
            const EpsilonBound bound = self.epsilon(delta);
            std::optional<double> approximation;
            if (bound.approximation) approximation = bound.approximation->not_a_bound();
            return std::tuple(bound.epsilon.lower, bound.epsilon.upper, approximation);
          },
          "delta"_a)
      .def(
          "delta",
          [](const Accountant& self, double epsilon) {
            const Interval delta = self.delta(epsilon);
            return std::tuple(delta.lower, delta.upper);
          },
          "epsilon"_a)
      .def(
          "group_epsilon",
          [](const Accountant& self, double delta, std::uint64_t group) {
            return result_of(group_epsilon(self.composed(), group, delta));
          },
          "delta"_a, "group_size"_a)
      .def("clone", &Accountant::clone)
      .def("save", [](const Accountant& self) { return to_bytes(self.save()); })
      .def(
          "restore", [](Accountant& self, const nb::bytes& saved) { self.restore(view(saved)); },
          "saved"_a)
      .def_prop_ro("name", [](const Accountant& self) { return std::string(self.name()); })
      .def_prop_ro("adjacency",
                   [](const Accountant& self) { return std::string(to_string(self.adjacency())); });
  m.def(
      "make_accountant",
      [](const std::string& name, bool log_space_accounting) {
        return make_accountant(name, {log_space_accounting});
      },
      "name"_a, "log_space_accounting"_a);
}

}  // namespace discreet::python
