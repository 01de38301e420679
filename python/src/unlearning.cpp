#include "python/src/unlearning.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "discreet/unlearning/online/memory_pair.h"
#include "discreet/unlearning/service/attack.h"
#include "python/src/array.h"
#include "python/src/rooms.h"

namespace discreet::python {

using namespace discreet::unlearning;
using namespace nb::literals;

namespace {

using Doubles = std::vector<double>;

Loss loss_named(const std::string& name) {
  return named("loss", name, {Loss::kSquared, Loss::kLogistic});
}

std::optional<CurvatureBounds> bounds_of(const std::optional<std::pair<double, double>>& bounds) {
  if (!bounds) return std::nullopt;
  return CurvatureBounds{bounds->first, bounds->second};
}

}  // namespace

void add_unlearning(nb::module_& m) {
  nb::class_<CalibrationStats>(m, "CalibrationStats")
      .def(
          "__init__",
          [](CalibrationStats* self, double G, double D, double c, double C, std::uint64_t N_star) {
            new (self) CalibrationStats{{G, D, c, C}, N_star, {}};
          },
          "G"_a = 1.0, "D"_a = 1.0, "c"_a = 1.0, "C"_a = 1.0, "N_star"_a = 1)
      .def_prop_ro("G", [](const CalibrationStats& s) { return s.constants.G; })
      .def_prop_ro("D", [](const CalibrationStats& s) { return s.constants.D; })
      .def_prop_ro("c", [](const CalibrationStats& s) { return s.constants.c; })
      .def_prop_ro("C", [](const CalibrationStats& s) { return s.constants.C; })
      .def_ro("N_star", &CalibrationStats::N_star)
      .def_ro("warnings", &CalibrationStats::warnings);

  nb::class_<Calibrator>(m, "Calibrator")
      .def(
          "__init__",
          [](Calibrator* self, double quantile, std::optional<double> D_cap) {
            new (self) Calibrator({quantile, D_cap});
          },
          "quantile"_a = 0.95, "D_cap"_a = nb::none())
      .def(
          "observe",
          [](Calibrator& self, const Doubles& grad, const Doubles& theta) {
            self.observe(grad, theta);
          },
          "grad"_a, "theta"_a, "Records the gradient's norm and a copy of theta.")
      .def(
          "finalize_stats",
          [](const Calibrator& self, double gamma,
             const std::optional<std::pair<double, double>>& bounds) {
            return self.finalize(gamma, bounds_of(bounds));
          },
          "gamma"_a, "bounds"_a = nb::none())
      .def_prop_ro("grad_norms", [](const Calibrator& self) { return self.grad_norms(); })
      .def_prop_ro("thetas", [](const Calibrator& self) { return self.thetas(); })
      .def_prop_ro("quantile", [](const Calibrator& self) { return self.options().quantile; })
      .def_prop_ro("D_cap", [](const Calibrator& self) { return self.options().D_cap; });

  nb::class_<PrivacyOdometer>(m, "PrivacyOdometer")
      .def(
          "__init__",
          [](PrivacyOdometer* self, double eps_total, double delta_total, double lambda,
             double delta_B, std::uint64_t T, double gamma_learn, double gamma_priv,
             const std::string& accounting, const std::string& guarantee, double reserve,
             const std::string& loss, std::size_t dimension, double G_f, double D, double R,
             double Y) {
            OdometerOptions o{eps_total, delta_total, lambda, delta_B, T, gamma_learn, gamma_priv};
            o.accounting = named("accounting", accounting,
                                 {Accounting::kSpecification, Accounting::kZcdp, Accounting::kRdp,
                                  Accounting::kGdp});
            o.guarantee =
                named("guarantee", guarantee,
                      {Guarantee::kPerRecord, Guarantee::kSetLevel, Guarantee::kTranscript});
            o.enforced = {loss_named(loss), dimension, lambda, G_f, D, R, Y};
            o.reserve = reserve;
            new (self) PrivacyOdometer(o);
          },
          nb::kw_only(), "eps_total"_a, "delta_total"_a, "lambda_"_a, "delta_B"_a, "T"_a,
          "gamma_learn"_a, "gamma_priv"_a, "accounting"_a, "guarantee"_a, "reserve"_a, "loss"_a,
          "dimension"_a, "G_f"_a, "D"_a, "R"_a, "Y"_a)
      .def("finalize_stats", &PrivacyOdometer::finalize_with, "stats"_a, "T_estimate"_a,
           "deletes_from"_a = 1)
      .def("recalibrate_stats", &PrivacyOdometer::recalibrate, "stats"_a, "T_estimate"_a,
           "deletes_from"_a = 1)
      .def("spend", &PrivacyOdometer::spend, "deletes"_a = 1,
           "Counts deletions, all or none; PRIVACY_BUDGET_EXCEEDED if fewer are left.")
      .def("noise_scale", nb::overload_cast<>(&PrivacyOdometer::noise_scale, nb::const_),
           "sigma_step, under the specification's accounting.")
      .def("noise_scale", nb::overload_cast<double>(&PrivacyOdometer::noise_scale, nb::const_),
           "sensitivity"_a, "The noise that a certified delete of this sensitivity needs.")
      .def_prop_ro("ready_to_delete", &PrivacyOdometer::ready_to_delete)
      .def_prop_ro("m", &PrivacyOdometer::m)
      .def_prop_ro("deletion_capacity", &PrivacyOdometer::deletion_capacity)
      .def_prop_ro("capacity_remaining", &PrivacyOdometer::remaining)
      .def_prop_ro("deletes", &PrivacyOdometer::deletes)
      .def_prop_ro("eps_step", &PrivacyOdometer::eps_step)
      .def_prop_ro("delta_step", &PrivacyOdometer::delta_step)
      .def_prop_ro("sigma_step", &PrivacyOdometer::sigma_step)
      .def_prop_ro("rho_step", &PrivacyOdometer::rho_step)
      .def_prop_ro("eps_spent", &PrivacyOdometer::eps_spent)
      .def("charge_reserve", &PrivacyOdometer::charge_reserve, "rho"_a,
           "Charges the cost of a release or drift test to the reserve.")
      .def_prop_ro("reserve_left",
                   [](const PrivacyOdometer& self) { return self.reserve().left(); })
      .def_prop_ro("T", [](const PrivacyOdometer& self) { return self.options().T; })
      .def_prop_ro("gamma_learn",
                   [](const PrivacyOdometer& self) { return self.options().gamma_learn; })
      .def_prop_ro("gamma_priv",
                   [](const PrivacyOdometer& self) { return self.options().gamma_priv; })
      .def_prop_ro("eps_total",
                   [](const PrivacyOdometer& self) { return self.options().eps_total; })
      .def_prop_ro("delta_total",
                   [](const PrivacyOdometer& self) { return self.options().delta_total; })
      .def_prop_ro("status", [](const PrivacyOdometer& self) { return std::string(self.status()); })
      .def_prop_ro(
          "guarantee",
          [](const PrivacyOdometer& self) { return std::string(to_string(self.guarantee())); })
      .def_prop_ro("messages", [](const PrivacyOdometer& self) { return self.warnings(); });

  nb::class_<MemoryPair>(m, "MemoryPair")
      .def(
          "__init__",
          [](MemoryPair* self, std::size_t dim, std::shared_ptr<PrivacyOdometer> odometer,
             const Calibrator& calibrator, const std::string& loss,
             std::optional<std::uint64_t> insecure_seed) {
            new (self) MemoryPair(dim, std::move(odometer), calibrator, loss_named(loss),
                                  noise_of(insecure_seed));
          },
          "dim"_a, "odometer"_a, "calibrator"_a, "loss"_a, "insecure_seed"_a)
      .def(
          "calibrate_step",
          [](MemoryPair& self, const Doubles& x, double y) { return self.calibrate_step(x, y); },
          "x"_a, "y"_a, "One step in CALIBRATION; returns the prediction made before it.")
      .def(
          "finalize_gamma",
          [](MemoryPair& self, double gamma) { return self.finalize_calibration(gamma); },
          "gamma_learn"_a)
      .def(
          "finalize_stats",
          [](MemoryPair& self, const CalibrationStats& stats) {
            return self.finalize_calibration(stats);
          },
          "stats"_a)
      .def(
          "insert", [](MemoryPair& self, const Doubles& x, double y) { return self.insert(x, y); },
          "x"_a, "y"_a, "One step; returns the prediction made before it.")
      .def(
          "erase", [](MemoryPair& self, const Doubles& x, double y) { self.erase(x, y); }, "x"_a,
          "y"_a)
      .def(
          "predict",
          [](const MemoryPair& self, const Doubles& x) {
            const Prediction p = self.predict(x);
            return std::pair(p.value, p.ready);
          },
          "x"_a, "(value, ready): ready is False before N* inserts.")
      .def("revert_to_calibration", &MemoryPair::revert_to_calibration,
           "Returns to CALIBRATION; the spend is kept.")
      .def(
          "set_comparator", [](MemoryPair& self, Doubles theta) { self.set_comparator(theta); },
          "theta"_a, "Regret is measured against this fixed parameter.")
      .def(
          "on_phase_number",
          [](MemoryPair& self, nb::object hook) {
            self.on_phase([hook = std::move(hook)](Phase from, Phase to) {
              hook(static_cast<int>(from), static_cast<int>(to));
            });
          },
          "hook"_a)
      .def("metrics", &MemoryPair::metrics, "The log of the specification: values by name.")
      .def(
          "lbfgs_bounds",
          [](const MemoryPair& self) -> std::optional<std::pair<double, double>> {
            const auto bounds = self.lbfgs_bounds();
            if (!bounds) return std::nullopt;
            return std::pair(bounds->c, bounds->C);
          },
          "Extreme eigenvalues (c, C) of the L-BFGS approximation, or None.")
      .def_prop_ro("phase_number",
                   [](const MemoryPair& self) { return static_cast<int>(self.phase()); })
      .def_prop_ro(
          "theta",
          [](const MemoryPair& self) {
            return to_numpy(Doubles(self.theta().begin(), self.theta().end()));
          },
          nb::rv_policy::automatic)
      .def_prop_ro("N_star", &MemoryPair::N_star)
      .def_prop_ro("ready_to_predict", &MemoryPair::ready_to_predict)
      .def_prop_ro("can_predict", &MemoryPair::can_predict)
      .def_prop_ro("events_seen", &MemoryPair::events_seen)
      .def_prop_ro("inserts_seen", &MemoryPair::inserts_seen)
      .def_prop_ro("deletes_seen", &MemoryPair::deletes_seen)
      .def_prop_ro("avg_regret_empirical", &MemoryPair::avg_regret_empirical)
      .def_prop_ro("calibrator", [](const MemoryPair& self) { return self.calibrator(); })
      .def_prop_ro("calibration_stats", [](const MemoryPair& self) { return self.stats(); });

  m.def(
      "sample_complexity",
      [](const CalibrationStats& stats, double gamma) {
        return sample_complexity(stats.constants, gamma);
      },
      "stats"_a, "gamma"_a, "N*, computed from these constants.");
  m.def(
      "epsilon_lower_bound",
      [](std::uint64_t deleted, std::uint64_t never, std::uint64_t runs, double delta,
         double alpha) {
        return epsilon_lower_bound({deleted, never, runs}, delta, alpha);
      },
      nb::kw_only(), "hits_deleted"_a, "hits_never"_a, "runs"_a, "delta"_a, "alpha"_a = 0.05,
      "The lower bound of epsilon that an attack proves, with confidence 1 - alpha.");
}

}  // namespace discreet::python
