#include "discreet/release/inference_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "discreet/base/error.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"
#include "discreet/release/envelope.h"
#include "discreet/release/record.h"

namespace discreet::release {
namespace {

std::uint64_t system_clock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(now).count()));
}

bool has(const std::vector<std::string>& ascending, std::string_view item) {
  return std::binary_search(ascending.begin(), ascending.end(), item, std::less<>());
}

std::string epsilon(std::uint64_t micro) {
  return fmt::format("{}.{:06}", micro / 1'000'000, micro % 1'000'000);
}

}  // namespace

std::string_view to_string(Reason reason) noexcept {
  switch (reason) {
    case Reason::kMalformedManifest: return "MALFORMED_MANIFEST";
    case Reason::kUnknownKey: return "UNKNOWN_KEY";
    case Reason::kBadSignature: return "BAD_SIGNATURE";
    case Reason::kWrongModel: return "WRONG_MODEL";
    case Reason::kLedgerUnverified: return "LEDGER_UNVERIFIED";
    case Reason::kNotRecorded: return "NOT_RECORDED";
    case Reason::kWithdrawn: return "WITHDRAWN";
    case Reason::kNotYetValid: return "NOT_YET_VALID";
    case Reason::kStale: return "STALE";
    case Reason::kUnknownGenerationClass: return "UNKNOWN_GENERATION_CLASS";
    case Reason::kPurposeNotGranted: return "PURPOSE_NOT_GRANTED";
    case Reason::kDrawsOnWithdrawn: return "DRAWS_ON_WITHDRAWN";
    case Reason::kClassNotPermitted: return "CLASS_NOT_PERMITTED";
    case Reason::kEpsilonAbove: return "EPSILON_ABOVE";
    case Reason::kAllowed: return "ALLOWED";
  }
  return "?";
}

Gate::Gate(std::string_view envelope, Evidence evidence)
    : clock_(evidence.clock ? std::move(evidence.clock) : system_clock) {
  fault_ = examine(envelope, evidence);
  if (fault_)
    fault_->position = position_;
  else
    prepare();
}

std::optional<Decision> Gate::examine(std::string_view envelope, const Evidence& evidence) {
  Opened opened = open(envelope, evidence.key);
  if (!opened.manifest) {
    constexpr Reason kReasons[] = {Reason::kMalformedManifest, Reason::kUnknownKey,
                                   Reason::kBadSignature};
    return Decision{kReasons[static_cast<int>(opened.fault)], std::move(opened.problem)};
  }
  manifest_ = std::move(opened.manifest);
  position_ = position_of(*manifest_);

  std::vector<ModelFile> served = evidence.model;
  std::sort(served.begin(), served.end(),
            [](const ModelFile& a, const ModelFile& b) { return a.name < b.name; });
  for (const ModelFile& file : manifest_->model)
    if (std::find(served.begin(), served.end(), file) == served.end())
      return Decision{
          Reason::kWrongModel,
          fmt::format("{} differs from the file of the manifest, or does not exist", file.name)};
  if (served.size() != manifest_->model.size())
    return Decision{Reason::kWrongModel, "served files are not in the manifest"};

  const bool asked = evidence.ledger || evidence.ledger_key || evidence.checkpoint;
  if (!manifest_->ledger)
    return asked ? std::optional(Decision{Reason::kLedgerUnverified,
                                          "the manifest names no ledger: its run had no corpus"})
                 : std::nullopt;
  if (evidence.ledger_key &&
      !std::ranges::equal(evidence.ledger_key->bytes(), manifest_->ledger->key))
    return Decision{Reason::kLedgerUnverified,
                    "the manifest's ledger is signed by another key than the given one"};
  if (evidence.ledger) return examine_ledger(envelope, evidence);
  if (evidence.checkpoint) return examine_checkpoint(*evidence.checkpoint);
  return std::nullopt;
}

std::optional<Decision> Gate::examine_checkpoint(const std::string& note) const {
  const auto ours = ledger::read_unverified(manifest_->ledger->note);
  std::optional<ledger::Checkpoint> given;
  try {
    given = ledger::open_note(
        note, {ours.origin, admission::PublicKey::from_bytes(manifest_->ledger->key)});
  } catch (const Error&) {
  }
  if (!given || given->origin != ours.origin)
    return Decision{Reason::kLedgerUnverified,
                    "the given checkpoint is not a note of the manifest's ledger"};
  if (given->size > ours.size)
    return Decision{
        Reason::kLedgerUnverified,
        fmt::format("the ledger now has {} entries, but the manifest knows {}; pass the ledger",
                    given->size, ours.size)};
  if (given->size == ours.size && given->root != ours.root)
    return Decision{Reason::kLedgerUnverified,
                    "the given checkpoint belongs to a fork of the manifest's ledger"};
  return std::nullopt;
}

std::optional<Decision> Gate::examine_ledger(std::string_view envelope, const Evidence& evidence) {
  const LedgerView& view = *manifest_->ledger;
  try {
    ledger::Store store(*evidence.ledger, ledger::Store::Mode::kRead);
    store.begin_snapshot();
    ledger::VerifyOptions options;
    options.key = admission::PublicKey::from_bytes(view.key);
    options.checkpoint = view.note;
    options.attestations = false;
    ledger::Verification where;
    const ledger::Loaded loaded = ledger::load(store, options, false, where);
    if (evidence.checkpoint) {
      const auto given =
          ledger::open_note(*evidence.checkpoint, {loaded.state.header().origin, options.key->key});
      if (!given || given->size > loaded.frontier.size() ||
          ledger::range_hash(store)(0, given->size) != given->root)
        return Decision{Reason::kLedgerUnverified,
                        "the ledger does not extend the given checkpoint: it was rolled back or "
                        "forked, or the checkpoint belongs to another ledger"};
    }
    const ledger::Header& header = loaded.state.header();
    const RunRecord record =
        record_of(store, loaded.state, manifest_->runs, position_of(*manifest_), hash_of(envelope));
    position_ = loaded.frontier.size();
    if (header.accountant != view.accountant || header.delta != view.delta ||
        header.adjacency != view.adjacency ||
        (record.summarised == 0 && record.postures != manifest_->postures))
      return Decision{Reason::kLedgerUnverified,
                      "the manifest states something about its classes that the ledger does not, "
                      "or was written before spends of withdrawn contributions were stated as "
                      "promised; release the run again"};
    released_at_ = record.released_at;
    if (!released_at_)
      return Decision{
          Reason::kNotRecorded,
          "the ledger has no release with this manifest, so contributors cannot find it"};
    if (record.withdrawn_at)
      return Decision{Reason::kWithdrawn,
                      fmt::format("a contribution that the model used was withdrawn at entry {}; "
                                  "train again, or release again and state it",
                                  *record.withdrawn_at)};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    return Decision{Reason::kLedgerUnverified,
                    fmt::format("the ledger does not verify: {}", error.sentence())};
  }
  return std::nullopt;
}

void Gate::prepare() {
  std::map<std::string, const Posture*> postures;
  for (const Posture& p : manifest_->postures) postures[p.admissibility_class] = &p;
  for (const GenerationClass& g : manifest_->generation) {
    std::set<std::string> behind;
    for (const Layer& layer : manifest_->layers)
      if (has(g.layers, layer.name)) behind.insert(layer.classes.begin(), layer.classes.end());
    for (const Adapter& adapter : manifest_->adapters)
      if (has(g.adapters, adapter.name))
        behind.insert(adapter.classes.begin(), adapter.classes.end());
    Kind& kind = kinds_[g.name];
    kind.purposes = g.purposes;
    kind.serves_withdrawn = g.serves_withdrawn;
    for (const std::string& name : behind) kind.postures.push_back(*postures.at(name));
  }
}

Decision Gate::standing() const {
  if (fault_) return *fault_;
  const std::uint64_t now = clock_();
  if (now < manifest_->issued)
    return {Reason::kNotYetValid, "the manifest was issued in the future; check the clocks",
            position_};
  if (now - manifest_->issued >= manifest_->max_age)
    return {Reason::kStale,
            fmt::format("the manifest is {} seconds old, and stale after {}; release again",
                        now - manifest_->issued, manifest_->max_age),
            position_};
  return {Reason::kAllowed, "the manifest is valid", position_};
}

Decision Gate::decide(const Request& request) const {
  Decision out = standing();
  if (!out.allowed()) return out;
  const auto answer = [&](Reason reason, std::string sentence) {
    return Decision{reason, std::move(sentence), position_};
  };
  const auto found = kinds_.find(request.generation_class);
  if (found == kinds_.end())
    return answer(
        Reason::kUnknownGenerationClass,
        "the manifest has no such generation class; `discreet gate` without a request lists them");
  const Kind& kind = found->second;
  if (!has(kind.purposes, request.purpose) && !has(kind.purposes, kAnyPurpose))
    return answer(Reason::kPurposeNotGranted,
                  fmt::format("generation class {} does not serve this purpose", found->first));
  for (const Posture& p : kind.postures)
    if (p.withdrawn > 0 && !kind.serves_withdrawn)
      return answer(
          Reason::kDrawsOnWithdrawn,
          fmt::format("generation class {} draws on layers of {} contributions of class {} "
                      "that were withdrawn before the release",
                      found->first, p.withdrawn, p.admissibility_class));
  if (request.rights.classes)
    for (const Posture& p : kind.postures)
      if (!has(*request.rights.classes, p.admissibility_class))
        return answer(
            Reason::kClassNotPermitted,
            fmt::format("generation class {} draws on layers of class {}, which is outside "
                        "the request's rights",
                        found->first, p.admissibility_class));
  if (request.rights.most_epsilon)
    for (const Posture& p : kind.postures)
      if (p.spend > *request.rights.most_epsilon)
        return answer(Reason::kEpsilonAbove,
                      fmt::format("generation class {} draws on layers of class {}, which spent "
                                  "{}; the request's rights allow at most {}",
                                  found->first, p.admissibility_class, epsilon(p.spend),
                                  epsilon(*request.rights.most_epsilon)));
  return answer(Reason::kAllowed,
                fmt::format("generation class {} is within its purposes and the request's rights",
                            found->first));
}

}  // namespace discreet::release
