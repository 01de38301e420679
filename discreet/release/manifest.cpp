#include "discreet/release/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "discreet/admission/ed25519.h"
#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"
#include "discreet/ledger/note.h"

namespace discreet::release {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kOperator = "release";

void require_text(const char* what, std::string_view text, std::size_t most = 256) {
  if (text.empty() || text.size() > most)
    invalid_input(kOperator, "{} has {} bytes; expected 1 to {}", what, text.size(), most);
  if (find_bad_utf8(bytes_of(text))) invalid_input(kOperator, "{} is not UTF-8", what);
  if (std::any_of(text.begin(), text.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    invalid_input(kOperator, "{} has control characters", what);
}

template <class T, class Name>
void require_ascending(const char* what, const std::vector<T>& items, Name&& name) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    require_text(what, name(items[i]));
    if (i > 0 && !(name(items[i - 1]) < name(items[i])))
      invalid_input(kOperator, "{} {} occurs twice or out of order", what, name(items[i]));
  }
}

void require_ascending(const char* what, const Names& items) {
  require_ascending(what, items, [](const std::string& s) -> const std::string& { return s; });
}

template <class T, class Name>
std::set<std::string> names_of(const std::vector<T>& items, Name&& name) {
  std::set<std::string> out;
  for (const T& item : items) out.insert(name(item));
  return out;
}

void require_known(const char* what, const Names& items, const std::set<std::string>& known) {
  require_ascending(what, items);
  for (const std::string& item : items)
    if (!known.contains(item)) invalid_input(kOperator, "{} {} does not exist", what, item);
}

void check_postures(const Manifest& m) {
  require_ascending("the class of a posture", m.postures,
                    [](const Posture& p) -> const std::string& { return p.admissibility_class; });
  if (m.postures.empty())
    invalid_input(kOperator,
                  "the manifest has no posture, so it says nothing about the training data; add "
                  "one per class");
  for (const Posture& p : m.postures) {
    const bool unattested = p.admissibility_class == kUnattested;
    if (unattested == m.ledger.has_value())
      invalid_input(kOperator, "{}",
                    m.ledger ? "records without descriptor cannot be in a ledger"
                             : "a class of contributions is named, but no ledger");
    if (p.withdrawn > p.contributions)
      invalid_input(kOperator, "class {} has more withdrawals than contributions",
                    p.admissibility_class);
    if (unattested != (p.contributions == 0))
      invalid_input(kOperator, "class {} has {} contributions", p.admissibility_class,
                    p.contributions);
    // A recorded spend is up to two millionths above what its events compose to (ledger/state.cpp).
    if (m.privacy.epsilon + 2 < p.spend)
      invalid_input(kOperator,
                    "the promise of epsilon {}.{:06} is below the {}.{:06} that class {} spent: "
                    "release the run again",
                    m.privacy.epsilon / 1'000'000, m.privacy.epsilon % 1'000'000,
                    p.spend / 1'000'000, p.spend % 1'000'000, p.admissibility_class);
    if (!unattested && (p.epochs == 0 || p.clip == 0 || p.deviation == 0))
      invalid_input(kOperator, "class {} has no epoch, bound or noise", p.admissibility_class);
  }
}

void check_ledger(const LedgerView& view) {
  require_text("the ledger's accountant", view.accountant);
  if (view.delta == 0 || view.delta >= static_cast<std::uint64_t>(ledger::kAtto))
    invalid_input(kOperator, "the ledger's delta is not in (0, 1)");
  if (view.note.size() > 4096) invalid_input(kOperator, "the ledger's note is too long");
  const auto claimed = ledger::read_unverified(view.note);
  const auto key = admission::PublicKey::from_bytes(view.key);
  const auto opened = ledger::open_note(view.note, {claimed.origin, key});
  if (!opened) invalid_input(kOperator, "the ledger's note is not signed by the ledger's key");
  if (opened->size < 2) invalid_input(kOperator, "the ledger's note belongs to no ledger");
}

}  // namespace

void require_valid(const Manifest& m) {
  require_ascending("the run", m.runs);
  if (m.runs.empty()) invalid_input(kOperator, "there is no run");
  require_ascending("model file", m.model,
                    [](const ModelFile& f) -> const std::string& { return f.name; });
  if (m.model.empty()) invalid_input(kOperator, "there is no model file");
  for (const ModelFile& f : m.model)
    if (f.name.find('/') != std::string::npos || f.name == "." || f.name == "..")
      invalid_input(kOperator, "the model file {} is not a valid file name", f.name);
  constexpr std::uint64_t kEndOfTime = 253'402'300'800;  // the year 10000
  if (m.issued >= kEndOfTime || m.max_age == 0 || m.max_age >= kEndOfTime)
    invalid_input(
        kOperator,
        "the times of the manifest are out of range; max_age must be at least one second");
  if (m.ledger) check_ledger(*m.ledger);
  check_postures(m);

  const auto classes = names_of(m.postures, [](const Posture& p) { return p.admissibility_class; });
  const auto layers = names_of(m.layers, [](const Layer& l) { return l.name; });
  if (m.layers.empty() || layers.size() != m.layers.size())
    invalid_input(kOperator, "there is no layer, or a layer occurs twice");
  for (const Layer& layer : m.layers) {
    require_text("the name of a layer", layer.name);
    require_known("class", layer.classes, classes);
  }
  require_ascending("adapter", m.adapters,
                    [](const Adapter& a) -> const std::string& { return a.name; });
  require_ascending("generation class", m.generation,
                    [](const GenerationClass& g) -> const std::string& { return g.name; });
  if (m.generation.empty())
    invalid_input(kOperator, "there is no generation class, so no request could be allowed");
  const auto kinds = names_of(m.generation, [](const GenerationClass& g) { return g.name; });
  const auto adapters = names_of(m.adapters, [](const Adapter& a) { return a.name; });
  for (const Adapter& adapter : m.adapters) {
    require_known("class", adapter.classes, classes);
    require_known("generation class", adapter.scope, kinds);
  }
  for (const GenerationClass& g : m.generation) {
    require_known("layer", g.layers, layers);
    require_known("adapter", g.adapters, adapters);
    require_ascending("purpose", g.purposes);
    if (g.layers.empty() && g.adapters.empty())
      invalid_input(kOperator, "generation class {} draws on nothing", g.name);
    if (g.purposes.empty()) invalid_input(kOperator, "generation class {} has no purpose", g.name);
    for (const Adapter& adapter : m.adapters)
      if (std::binary_search(g.adapters.begin(), g.adapters.end(), adapter.name) &&
          !std::binary_search(adapter.scope.begin(), adapter.scope.end(), g.name))
        invalid_input(kOperator, "generation class {} is not in the scope of adapter {}", g.name,
                      adapter.name);
  }

  if (m.ledger && m.privacy.delta < m.ledger->delta)
    invalid_input(kOperator,
                  "the delta of the privacy statement is below that of the ledger, at which "
                  "classes spent: release the run again");
  if (m.privacy.delta > static_cast<std::uint64_t>(ledger::kAtto))
    invalid_input(kOperator, "the delta of the privacy statement is above 1");
  if (m.privacy.covers.empty() || m.privacy.not_covered.empty())
    invalid_input(kOperator, "the privacy statement must say what it covers and what it does not");
  for (const Names* sentences : {&m.privacy.covers, &m.privacy.not_covered})
    for (const std::string& sentence : *sentences)
      require_text("a sentence of the privacy statement", sentence, 1024);
}

std::string describe(const Posture& p) {
  const std::string who =
      p.admissibility_class == kUnattested
          ? "records without descriptor"
          : fmt::format("{} contributions, {} of them withdrawn", p.contributions, p.withdrawn);
  return fmt::format("{:<14} {}, epsilon ≤ {}.{:06}", p.admissibility_class, who,
                     p.spend / 1'000'000, p.spend % 1'000'000);
}

std::uint64_t position_of(const Manifest& manifest) {
  return manifest.ledger ? ledger::read_unverified(manifest.ledger->note).size : 0;
}

}  // namespace discreet::release
