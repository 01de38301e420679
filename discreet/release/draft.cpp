#include "discreet/release/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "discreet/admission/resolver.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/text/rounded_text.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"
#include "discreet/release/record.h"
#include "discreet/release/strict_json_impl.h"

namespace discreet::release {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kOperator = "release";

// The least whole number that is at least x * scale, exactly: where the product is whole, the bits
// it lost decide.
std::uint64_t rounded_up(double x, double scale, const char* what) {
  const double product = x * scale, up = std::ceil(product);
  if (!(x >= 0) || !(up < 0x1p63))
    invalid_input(kOperator, "{} is {}, which is not a valid promise", what, x);
  const bool lost = up == product && std::fma(x, scale, -product) > 0;
  return static_cast<std::uint64_t>(up) + lost;
}

// ---------------------------------------------------------------- which layers a class reached

std::uint32_t index_of(const cbor::Value& value) {
  const std::uint64_t number = value.as_unsigned();
  if (number > 0xffffffff) invalid_input(kOperator, "an index of a depth profile is too large");
  return static_cast<std::uint32_t>(number);
}
std::vector<std::uint32_t> indices_of(const cbor::Value& list) {
  std::vector<std::uint32_t> out;
  for (const cbor::Value& item : list.as_array()) out.push_back(index_of(item));
  return out;
}

// A depth profile as a policy encodes it (admission/policy.cpp). Throws for anything else.
admission::DepthProfile profile_of(const cbor::Value& map) {
  if (map.at("schema") != cbor::Value(admission::kProfileSchema))
    invalid_input(kOperator, "another schema");
  const auto& parts = map.at("where").as_array();
  const std::string_view kind = parts.at(0).as_text();
  admission::DepthProfile out{admission::WholeModel{}, indices_of(map.at("heads")),
                              indices_of(map.at("experts"))};
  if (kind == "depth") {
    const std::uint64_t from = parts.at(1).as_unsigned(), to = parts.at(2).as_unsigned();
    if (!(from < to && to <= admission::Scaled::kUnit)) invalid_input(kOperator, "a band is empty");
    out.where = admission::DepthBand{{from}, {to}};
  } else if (kind == "layers") {
    const std::uint32_t first = index_of(parts.at(1)), last = index_of(parts.at(2));
    if (first > last) invalid_input(kOperator, "a band is empty");
    out.where = admission::LayerBand{first, last};
  } else if (kind == "modules") {
    admission::ModuleSet set;
    for (const cbor::Value& module : parts.at(1).as_array())
      set.modules.emplace_back(module.as_text());
    out.where = std::move(set);
  } else if (kind == "adapter") {
    out.where = admission::AdapterBound{std::string(parts.at(1).as_text())};
  } else if (kind != "whole") {
    invalid_input(kOperator, "another kind of profile");
  }
  return out;
}

struct Touched {
  std::map<std::string, std::set<std::string>> layers, adapters;  // name: classes
};

void touch(const RunRecord::Route& route, const ModelLayout& layout, Touched& out) {
  std::optional<admission::DepthProfile> profile;
  try {
    profile = profile_of(cbor::decode(route.profile));
  } catch (const std::exception&) {
  }
  if (!profile) {  // written by others: it may have permitted everything
    for (const std::string& layer : admission::layer_stack(layout))
      out.layers[layer].insert(route.admissibility_class);
    return;
  }
  for (const auto& permitted : admission::permitted_tensors(*profile, route.adapter, layout)) {
    const Tensor& tensor = layout.tensors()[permitted.tensor];
    auto& parts = tensor.adapter.empty() ? out.layers : out.adapters;
    parts[tensor.adapter.empty() ? tensor.layer : tensor.adapter].insert(route.admissibility_class);
  }
}

Names sorted(Names names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void set_parts(const RunFacts& facts, const ReleaseTerms& terms, const Touched& touched,
               Manifest& m) {
  const auto classes_of = [](const auto& parts, const std::string& name) {
    const auto at = parts.find(name);
    return at == parts.end() ? Names() : Names(at->second.begin(), at->second.end());
  };
  const Names stack = admission::layer_stack(facts.layout);
  for (const std::string& layer : stack)
    m.layers.push_back({layer, classes_of(touched.layers, layer)});
  std::map<std::string, Adapter> adapters;
  for (const Tensor& tensor : facts.layout.tensors())
    if (!tensor.adapter.empty())
      adapters[tensor.adapter] = {tensor.adapter, classes_of(touched.adapters, tensor.adapter), {}};
  for (const auto& [name, scope] : terms.generation) {
    m.generation.push_back({name, sorted(scope.layers.value_or(stack)), sorted(scope.adapters),
                            sorted(scope.purposes), scope.serves_withdrawn});
    for (const std::string& adapter : m.generation.back().adapters) {
      const auto at = adapters.find(adapter);
      if (at == adapters.end())
        invalid_input(kOperator,
                      "generation class {} names the adapter {}, which the model does not have",
                      name, adapter);
      at->second.scope.push_back(name);
    }
  }
  for (auto& [name, adapter] : adapters) m.adapters.push_back(std::move(adapter));
}

// ---------------------------------------------------------------- the ledger

RunRecord read_ledger(const LedgerAt& at, Manifest& m) {
  ledger::Store store(at.path, ledger::Store::Mode::kRead);
  store.begin_snapshot();
  ledger::VerifyOptions options;
  options.key = at.key;
  options.checkpoint = at.note;
  options.attestations = false;
  ledger::Verification where;
  std::optional<ledger::Loaded> loaded;
  try {
    loaded = ledger::load(store, options, false, where);
    const ledger::Header& header = loaded->state.header();
    m.ledger =
        LedgerView{header.key, loaded->note, header.accountant, header.delta, header.adjacency};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    malformed(kOperator, "the ledger does not verify{}: {}",
              where.entry ? fmt::format(" at entry {}", *where.entry) : "", error.sentence());
  }
  RunRecord record = record_of(store, loaded->state, m.runs, position_of(m));
  if (record.summarised > 0)
    invalid_input(kOperator,
                  "contributions of run {} were summarised, so their bounds can no longer be "
                  "stated. Train again to release",
                  fmt::join(m.runs, " and "));
  if (record.postures.empty())
    invalid_input(kOperator, "the ledger has no epoch of run {} with a contribution",
                  fmt::join(m.runs, " or "));
  return record;
}

// With a ledger epsilon is of all its runs, and what is certified for groups is of this one.
std::string several_records(const RunFacts& facts, bool governed) {
  std::string out =
      "Several records of one person together, beyond this: at the same delta, epsilon can grow "
      "faster than their number.";
  const std::map<std::uint64_t, double> none, &groups = governed ? none : facts.groups;
  for (const auto& [records, epsilon] : groups)
    out += fmt::format(" For {} records, all present against all absent, it is at most {}.",
                       records, brief_up(epsilon));
  if (groups.empty()) out += " No epsilon is certified for them.";
  return out;
}

// record: what the ledger says of the run; null without one.
PrivacyStatement privacy_of(const RunFacts& facts, const RunRecord* record) {
  const bool governed = record != nullptr;
  PrivacyStatement out;
  out.epsilon = rounded_up(facts.epsilon, ledger::kMicro, "epsilon");
  out.delta = rounded_up(facts.delta, ledger::kAtto, "delta");
  out.adjacency = facts.adjacency;
  out.covers = {
      "Every record that was trained on, against anyone, for all that the run released: every "
      "noisy "
      "gradient, every version of the model, and the model at the end.",
      "Whatever is computed from the model later, such as predictions: it costs no further "
      "privacy.",
  };
  if (governed)
    out.covers.push_back(fmt::format(
        "Every contribution of the ledger, for all its runs together: its epsilon is at most the "
        "spend of its class at the delta and under the adjacency of the ledger, provided that the "
        "number of runs was fixed in advance{}.",
        record->has_plans ? "; each run counts with all that it planned, however it ended"
                          : " and each ended as it was planned"));
  out.not_covered = {
      "Held-out records: what was measured on them has no guarantee.",
      "Hyper-parameters chosen on this data: other runs that were tried on it spent privacy of "
      "their own.",
      several_records(facts, governed),
      "That a model forgets a contribution that was withdrawn after it was trained.",
  };
  if (governed)
    out.not_covered.emplace_back(
        "Who contributed: descriptors, admission and the number of contributions are public.");
  if (!facts.sealed)
    out.not_covered.emplace_back(
        "That trace and model are those that the run wrote: its seal was not verified when this "
        "was "
        "signed.");
  return out;
}

}  // namespace

std::map<std::string, ReleaseTerms::Scope> parse_scopes(std::string_view text) {
  const json read = parse_strictly(text, "scope file");
  if (!read.is_object() || read.empty())
    invalid_input(kOperator, "the scopes must be a JSON object of generation classes");
  std::map<std::string, ReleaseTerms::Scope> out;
  for (const auto& [name, about] : read.items()) {
    ReleaseTerms::Scope scope;
    if (!about.is_object())
      invalid_input(kOperator, "generation class {} is not an object", quoted(name));
    for (const auto& [key, value] : about.items()) {
      try {
        if (key == "layers") {
          scope.layers = value.get<Names>();
        } else if (key == "adapters") {
          scope.adapters = value.get<Names>();
        } else if (key == "purposes") {
          scope.purposes = value.get<Names>();
        } else if (key == "serves_withdrawn") {
          scope.serves_withdrawn = value.get<bool>();
        } else {
          invalid_input(kOperator,
                        "generation class {} has the unknown member {}; the members are layers, "
                        "adapters, purposes and serves_withdrawn",
                        quoted(name), quoted(key));
        }
      } catch (const json::exception&) {
        invalid_input(kOperator, "{} of generation class {} is not {}", key, quoted(name),
                      key == "serves_withdrawn" ? "true or false" : "a list of texts");
      }
    }
    out.emplace(name, std::move(scope));
  }
  return out;
}

Manifest draft(const RunFacts& facts, const ReleaseTerms& terms,
               const std::optional<LedgerAt>& at) {
  Manifest m;
  m.runs = sorted(facts.runs);
  m.model = facts.model;
  std::sort(m.model.begin(), m.model.end(),
            [](const ModelFile& a, const ModelFile& b) { return a.name < b.name; });
  m.issued = terms.issued;
  m.max_age = terms.max_age;
  Touched touched;
  if (at) {
    const RunRecord record = read_ledger(*at, m);
    if (facts.interrupted && !record.has_plans)
      invalid_input(kOperator,
                    "the run was interrupted, and its ledger, of schema 1, records what its epochs "
                    "spent until then, which is not a bound at a chosen time. Finish it with "
                    "'discreet train --resume', then release it");
    m.privacy = privacy_of(facts, &record);
    m.postures = record.postures;
    for (const Posture& posture : m.postures)
      m.privacy.epsilon = std::max(m.privacy.epsilon, posture.spend);
    m.privacy.delta = std::max(m.privacy.delta, m.ledger->delta);
    for (const RunRecord::Route& route : record.routes) touch(route, facts.layout, touched);
  } else {
    m.privacy = privacy_of(facts, nullptr);
    Posture unattested;
    unattested.admissibility_class = kUnattested;
    unattested.spend = m.privacy.epsilon;
    m.postures = {unattested};
    for (const Tensor& tensor : facts.layout.tensors())
      if (tensor.is_private())
        (tensor.adapter.empty() ? touched.layers[tensor.layer] : touched.adapters[tensor.adapter])
            .insert(std::string(kUnattested));
  }
  set_parts(facts, terms, touched, m);
  require_valid(m);
  return m;
}

std::optional<std::string> run_of_note(const std::filesystem::path& path, std::string_view note) {
  const std::uint64_t size = ledger::read_unverified(note).size;
  ledger::Store store(path, ledger::Store::Mode::kRead);
  ledger::Store::Leaves leaves(store, size == 0 ? 0 : size - 1);
  ledger::Store::Leaf leaf;
  if (size == 0 || !leaves.next(leaf) || leaf.position != size - 1 || leaf.summarised)
    return std::nullopt;
  const ledger::Entry entry = ledger::decode_entry(leaf.content);
  if (const auto* end = std::get_if<ledger::EpochEnd>(&entry)) return end->run;
  if (const auto* release = std::get_if<ledger::Release>(&entry)) return release->run;
  return std::nullopt;
}

}  // namespace discreet::release
