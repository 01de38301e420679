#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "discreet/accounting/filter.h"
#include "python/src/accounting.h"
#include "python/src/array.h"

namespace discreet::python {

using namespace discreet::accounting;
using namespace nb::literals;

namespace {

using Doubles = std::vector<double>;
using ReadOnly = nb::ndarray<nb::numpy, const double, nb::ndim<1>>;

Doubles copy_of(std::span<const double> values) { return {values.begin(), values.end()}; }

// save, restore and ==, alike for all that have bytes.
template <class Filter>
void add_bytes(nb::class_<Filter>& filter) {
  filter
      .def(
          "save", [](const Filter& self) { return to_bytes(self.save()); },
          "The state as deterministic CBOR.")
      .def_static(
          "restore", [](const nb::bytes& saved) { return Filter::restore(view(saved)); }, "saved"_a,
          "Continues where `save` stopped; never restore an outdated state.")
      .def("__eq__", [](const Filter& self, nb::handle other) {
        return nb::isinstance<Filter>(other) && self == nb::cast<const Filter&>(other);
      });
  filter.attr("__hash__") = nb::none();  // they change
}

}  // namespace

void add_filters(nb::module_& m) {
  nb::class_<RdpFilter> rdp(m, "RdpFilter", R"(A budget in Rényi divergences of several orders.

Valid when each step's noise is chosen after seeing the earlier releases. The run may go on while at
least one order is within its budget.)");
  rdp.def(
         "__init__",
         [](RdpFilter* self, const Doubles& orders, double epsilon, double delta) {
           new (self) RdpFilter(orders, epsilon, delta);
         },
         nb::kw_only(), "orders"_a, "epsilon"_a, "delta"_a)
      .def(
          "admits", [](const RdpFilter& self, const Doubles& d) { return self.admits(d); },
          "divergences"_a,
          "True if a step that spends divergences[i] at orders[i] may be released.")
      .def(
          "spend", [](RdpFilter& self, const Doubles& d) { self.spend(d); }, "divergences"_a,
          "Records the step; call it before the release. PRIVACY_BUDGET_EXCEEDED if it is not "
          "admitted.")
      .def_prop_ro("orders", [](const RdpFilter& self) { return copy_of(self.orders()); })
      .def_prop_ro("budgets", [](const RdpFilter& self) { return copy_of(self.budgets()); })
      .def_prop_ro("spent", [](const RdpFilter& self) {
        Doubles spent;
        for (std::size_t i = 0; i < self.orders().size(); ++i) spent.push_back(self.spent(i));
        return spent;
      });
  add_bytes(rdp);

  nb::class_<ZcdpFilter> zcdp(m, "ZcdpFilter", R"(A budget in zCDP.

A step of parameter rho (1/(2σ²) for a Gaussian) spends rho.)");
  zcdp.def(nb::init<double>(), "budget"_a)
      .def_static("for_target", &ZcdpFilter::for_target, nb::kw_only(), "epsilon"_a, "delta"_a,
                  "The filter with the largest budget that gives (epsilon, delta)-DP.")
      .def("admits", &ZcdpFilter::admits, "rho"_a,
           "True if a step that spends rho may be released.")
      .def("spend", &ZcdpFilter::spend, "rho"_a,
           "Records the step; call it before the release. PRIVACY_BUDGET_EXCEEDED if it is not "
           "admitted.")
      .def("epsilon", &ZcdpFilter::epsilon, "delta"_a,
           "Epsilon of the whole budget: the claim for the run, whenever it stops.")
      .def_prop_ro("budget", &ZcdpFilter::budget)
      .def_prop_ro("spent", &ZcdpFilter::spent);
  add_bytes(zcdp);

  nb::class_<ZcdpOdometer> odometer(m, "ZcdpOdometer", R"(A bound that holds at all times at once.

epsilon may be read, and acted upon, at any time, also one chosen from the releases.)");
  odometer.def(nb::init<double, double>(), nb::kw_only(), "first_budget"_a, "delta"_a)
      .def("spend", &ZcdpOdometer::spend, "rho"_a)
      .def_prop_ro("epsilon", &ZcdpOdometer::epsilon)
      .def_prop_ro("delta", &ZcdpOdometer::delta)
      .def_prop_ro("phase", &ZcdpOdometer::phase)
      .def_prop_ro("spent", &ZcdpOdometer::spent);
  add_bytes(odometer);

  nb::class_<IndividualFilters>(m, "IndividualFilters", R"(One filter for each record.

A record that cannot afford a step is left out of it and spends nothing. Spends and flags depend on
the data: they steer the run and are never published.)")
      .def(
          "__init__",
          [](IndividualFilters* self, const nb::int_& records, double budget) {
            new (self) IndividualFilters(count_of("records", records), budget);
          },
          nb::kw_only(), "records"_a, "budget"_a)
      .def_static(
          "restore",
          [](nb::handle spent, double budget) {
            return IndividualFilters(
                copy_of(readable_of<double>("IndividualFilters.restore", spent, "float64")),
                budget);
          },
          "spent"_a, "budget"_a, "Continues from the spends of an earlier run.")
      .def(
          "update",
          [](IndividualFilters& self, nb::handle spends, nb::handle records) {
            constexpr const char* kOp = "IndividualFilters.update";
            const auto given = readable_of<double>(kOp, spends, "float64");
            auto* active = new std::vector<std::uint8_t>(given.size());
            const nb::capsule owner(active, [](void* p) noexcept {
              delete static_cast<std::vector<std::uint8_t>*>(p);
            });
            if (records.is_none()) {
              self.update(given, *active);
            } else {
              const auto which = readable_of<std::uint64_t>(kOp, records, "uint64");
              self.update(which, given, *active);
            }
            return nb::ndarray<nb::numpy, bool, nb::ndim<1>>(active->data(), {active->size()},
                                                             owner);
          },
          "spends"_a, "records"_a = nb::none(),
          "Charges spends[k] to record records[k] (by default all records in order) if it fits "
          "the\nrecord's budget. Returns for each whether it did: the records that take part in "
          "the step.")
      .def_prop_ro(
          "spent",
          [](nb::handle_t<IndividualFilters> self) {
            const auto spent = nb::cast<const IndividualFilters&>(self).spent();
            return ReadOnly(spent.data(), {spent.size()}, self);
          },
          "The spend of each record, as a read-only view.")
      .def_prop_ro("budget", &IndividualFilters::budget);
}

}  // namespace discreet::python
