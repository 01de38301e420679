#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "discreet/base/text/printable.h"
#include "discreet/release/envelope.h"
#include "discreet/release/inference_gate.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;

namespace {

// Files as (name, SHA-256) pairs.
using Files = std::vector<std::pair<std::string, nb::bytes>>;

std::vector<release::ModelFile> files_of(const Files& files) {
  std::vector<release::ModelFile> out;
  for (const auto& [name, digest] : files) {
    release::ModelFile& file = out.emplace_back();
    file.name = name;
    if (digest.size() == file.sha256.size())
      std::copy_n(reinterpret_cast<const std::uint8_t*>(digest.c_str()), digest.size(),
                  file.sha256.begin());
  }
  return out;
}

void make_gate(release::Gate* at, const nb::bytes& envelope, const std::string& public_key,
               const Files& model, std::optional<std::filesystem::path> ledger,
               const std::optional<std::string>& ledger_key, std::optional<std::string> checkpoint,
               std::function<std::uint64_t()> clock) {
  release::Gate::Evidence evidence{admission::PublicKey::from_text(public_key), files_of(model)};
  evidence.ledger = std::move(ledger);
  if (ledger_key) evidence.ledger_key = admission::PublicKey::from_text(*ledger_key);
  evidence.checkpoint = std::move(checkpoint);
  evidence.clock = std::move(clock);
  const std::string text(envelope.c_str(), envelope.size());
  const python::Unlocked released;  // a ledger takes its time
  new (at) release::Gate(text, std::move(evidence));
}

nb::tuple answer(const release::Decision& decision) {
  return nb::make_tuple(
      decision.allowed(), std::string(to_string(decision.reason)), printable(decision.sentence),
      decision.position == 0 ? nb::object(nb::none()) : nb::object(nb::int_(decision.position)));
}

}  // namespace

void discreet::python::add_release(nb::module_& m) {
  m.def(
      "read_manifest",
      [](const nb::bytes& envelope) {
        return encode(release::read_unverified({envelope.c_str(), envelope.size()}));
      },
      "envelope"_a);
  nb::class_<release::Gate>(m, "ReleaseGate", nb::is_weak_referenceable())
      .def("__init__", &make_gate, "envelope"_a, "public_key"_a, "model"_a, "ledger"_a.none(),
           "ledger_key"_a.none(), "checkpoint"_a.none(), "clock"_a.none())
      .def(
          "decide_request",
          [](const release::Gate& gate, const std::string& json) {
            return answer(gate.decide(release::parse_request(json)));
          },
          "json"_a)
      .def("judge_manifest", [](const release::Gate& gate) { return answer(gate.standing()); })
      .def("statement_text",
           [](const release::Gate& gate) -> std::optional<std::string> {
             if (!gate.manifest()) return std::nullopt;
             return encode(*gate.manifest());
           })
      .def_prop_ro("released_at", &release::Gate::released_at);
}
