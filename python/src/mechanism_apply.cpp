#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "discreet/base/text/nearest.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/step/apply.h"
#include "python/src/accounting.h"
#include "python/src/array.h"
#include "python/src/rooms.h"
#include "python/src/session.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::mechanism;
using discreet::python::layout_of;
using discreet::python::loaded;
using discreet::python::pair_of;
using discreet::python::Session;
using discreet::python::TensorTuple;
using discreet::python::to_python;

namespace {

Digest digest_of(const nb::bytes& bytes) {
  Digest out{};
  if (bytes.size() != out.size())
    invalid_input("Mechanism",
                  "data_commitment has {} bytes; it must have the 32 of a SHA-256 digest",
                  bytes.size());
  std::copy_n(python::view(bytes).begin(), out.size(), out.begin());
  return out;
}

void add_session(nb::module_& m) {
  nb::class_<Session>(m, "MechanismSession")
      .def(
          "__init__",
          [](Session* self, const nb::bytes& yaml, const std::string& name,
             const std::vector<std::string>& settings, const std::vector<TensorTuple>& tensors,
             std::optional<nb::bytes> key, std::optional<nb::bytes> data, int threads,
             const python::Experts& experts, std::optional<std::vector<double>> routing) {
            const LoadedConfig config = loaded(yaml, name, settings);
            random::Key master =
                key ? random::Key::from_bytes(python::view(*key)) : random::Key::from_system();
            new (self)
                Session(config, layout_of(tensors, experts),
                        run::run_streams(config.config.privacy, std::move(master), std::nullopt),
                        data ? digest_of(*data) : Digest{}, threads, false,
                        routing ? std::optional(RoutingStats::from_public(std::move(*routing)))
                                : std::nullopt);
          },
          "yaml"_a, "name"_a, "settings"_a, "tensors"_a, "key"_a.none(), "data_commitment"_a.none(),
          "threads"_a, "experts"_a = python::Experts(), "routing"_a.none() = nb::none())
      .def("accumulate", &Session::accumulate)
      .def("release", &Session::release)
      .def("apply", &Session::apply)
      .def("sampler", &Session::sampler)
      .def("take_norms", &Session::take_norms, "norms"_a.noconvert(), "scales"_a.noconvert(),
           "records"_a, "stability"_a.none())
      .def("release_into", &Session::release_into)
      .def("drop", [](Session& s) { s.with([](Mechanism& m) { m.drop_microbatches(); }); })
      .def("parts",
           [](Session& s) {
             return s.with([](Mechanism& m) { return m.allocation().plan.partition.names; });
           })
      .def("part_of",
           [](Session& s) {
             return s.with([](Mechanism& m) {
               const std::vector<std::uint32_t>& parts = m.allocation().plan.partition.part_of;
               return std::vector<std::int64_t>(parts.begin(), parts.end());
             });
           })
      .def("clip_bounds",
           [](Session& s) { return s.with([](Mechanism& m) { return m.allocation().plan.clip; }); })
      .def("strategy",
           [](const Session& s) {
             return std::string(spelling(s.fixed().config().privacy.clip_strategy));
           })
      .def("noise_multiplier",
           [](Session& s) { return s.with([](Mechanism& m) { return m.noise_multiplier(); }); })
      .def("sampling",
           [](const Session& s) {
             const SamplingPlan& plan = s.fixed().sampling();
             nb::dict out;
             out["declared_size"] = plan.size;
             out["sampling_rate"] = plan.rate;
             out["batch_size"] = plan.batch;
             out["steps_per_epoch"] = plan.steps_per_epoch;
             return out;
           })
      .def("t", [](Session& s) { return s.with([](Mechanism& m) { return m.t(); }); })
      .def("spent",
           [](Session& s) {
             return pair_of(s.with([](Mechanism& m) { return m.spent().epsilon; }));
           })
      .def("epsilon", [](Session& s, double delta) { return pair_of(s.epsilon(delta)); })
      .def("group_epsilon", [](Session& s, std::uint64_t group,
                               double delta) { return pair_of(s.group_epsilon(group, delta)); })
      .def("most_records", [](const Session& s) { return s.fixed().most_records(); })
      .def("not_private", [](const Session& s) { return s.fixed().not_private(); })
      .def("notes", [](const Session& s) { return s.notes; })
      .def("yaml", [](const Session& s) { return write_yaml(s.fixed().config()); })
      .def("hash", [](const Session& s) { return to_hex(config_hash(s.fixed().config())); })
      .def("budget",
           [](const Session& s) {
             const DpConfig& dp = s.fixed().config().privacy;
             return nb::make_tuple(dp.target_epsilon, dp.target_delta,
                                   std::string(accounting::to_string(dp.adjacency)),
                                   std::string(s.fixed().accountant().name()));
           })
      .def("replay",
           [](Session& s) { return to_hex(s.with([](Mechanism& m) { return m.replay(); })); })
      .def("fingerprint",
           [](Session& s) { return to_hex(s.with([](Mechanism& m) { return m.fingerprint(); })); })
      .def("trace_header",
           [](Session& s) {
             return to_python(s.with([](Mechanism& m) { return m.trace_header(); }));
           })
      .def("trace_end",
           [](Session& s) { return to_python(s.with([](Mechanism& m) { return m.trace_end(); })); })
      .def("failure",
           [](Session& s, const std::string& code, const std::string& op,
              const std::string& sentence) {
             const Error error = python::error_of(code, op, sentence);
             return to_python(s.with([&](Mechanism& m) { return m.emit_error(error).to_cbor(); }));
           })
      .def("claim",
           [](Session& s,
              const std::optional<std::string>& said) -> std::optional<std::pair<double, double>> {
             const auto claim = s.claim(python::ended_of(said));
             if (!claim) return std::nullopt;
             return std::pair(claim->lower, claim->upper);
           })
      .def("save",
           [](Session& s) {
             return python::to_bytes(s.with([](Mechanism& m) { return m.save(); }));
           })
      .def("lineage", [](Session& s) { return s.with([](Mechanism& m) { return m.lineage(); }); })
      .def("restore",
           [](Session& s, const nb::bytes& bytes, std::optional<std::uint64_t> released) {
             const ByteView view = python::view(bytes);
             s.with([&](Mechanism& m) { m.restore(view, released); });
           });
}

}  // namespace

void discreet::python::add_mechanism_apply(nb::module_& m) {
  nb::class_<Sampler>(m, "Sampler", R"(The batches of a run, by the law that its accountant knows.

From Mechanism.sampler(rows). A batch depends on the key and the step, and on nothing else.)")
      .def(
          "batch",
          [](Sampler& s, std::uint64_t step, std::uint64_t rank, std::uint64_t world) {
            return to_numpy(s.batch(step, rank, world));
          },
          "step"_a, nb::kw_only(), "rank"_a = 0, "world"_a = 1,
          "The records of a step, ascending, as uint64; may be empty. With rank and world: the "
          "share of one rank.")
      .def_prop_ro("rows", &Sampler::rows, "The number of records.")
      .def("__repr__", [](const Sampler& s) {
        return fmt::format("<discreet.mechanism.Sampler of {} rows>", s.rows());
      });
  add_session(m);
  m.def(
      "ghost_bound",
      [](const nb::bytes& yaml, const std::string& name, const std::vector<std::string>& settings,
         const std::vector<TensorTuple>& tensors) {
        std::vector<std::string> all = settings;
        all.push_back("ghost_bound_hash=" + std::string(64, '0'));  // it is what is asked for
        const LoadedConfig config = loaded(yaml, name, all);
        const run::RunStreams streams =
            run::run_streams(config.config.privacy, random::Key::from_system(), std::nullopt);
        return Mechanism(config.config, layout_of(tensors), streams.mechanism(), Digest{})
            .ghost_bound();
      },
      "yaml"_a, "name"_a, "settings"_a, "tensors"_a);
  m.def(
      "load_config",
      [](const nb::bytes& yaml, const std::string& name, const std::vector<std::string>& settings) {
        const LoadedConfig config = loaded(yaml, name, settings);
        return nb::make_tuple(write_yaml(config.config), to_hex(config_hash(config.config)),
                              config.notes, not_private_reasons(config.config.privacy));
      },
      "yaml"_a, "name"_a, "settings"_a);
}
