#include "discreet/report/ledger_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/ledger/verify.h"

namespace discreet::report {
namespace {

using namespace ledger;

Loaded load_verified(Store& store, const std::optional<std::string>& last_seen) {
  VerifyOptions how;
  how.attestations = false;
  how.checkpoint = last_seen;
  Verification where;
  try {
    // What a writer has not signed yet is not looked at.
    return load(store, how, true, where);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    malformed("report", "the ledger does not verify ({}{}): {}; see `discreet ledger verify`",
              where.kind, where.entry ? fmt::format(", entry {}", *where.entry) : "",
              error.sentence());
  }
}

// An epoch of a class that has not ended yet.
struct Open {
  std::uint64_t position;
  Terms terms;
  std::uint64_t uses = 0, most_spent = 0;
};

// Folds epochs into the rows of a view.
class Epochs {
 public:
  explicit Epochs(LedgerView& view) : view_(&view) {}

  void open(std::uint64_t position, const Terms& terms) { open_.push_back({position, terms}); }
  void use(const Use& use) {
    Open& terms = *std::ranges::find(open_, use.terms, &Open::position);
    ++terms.uses;
    terms.most_spent = std::max(terms.most_spent, use.spend);
  }
  void end() {
    for (const Open& each : open_) fold(each);
    open_.clear();
  }

 private:
  void fold(const Open& each) {
    const Terms& t = each.terms;
    const auto [place, is_new] = rows_.try_emplace(
        {t.run, t.admissibility_class, t.sampler, t.deviation, t.planned_steps}, rows_.size());
    if (is_new) ++view_->all_epochs;
    if (place->second >= kMostLedgerRows) return;
    if (is_new) view_->epochs.push_back({each.position, t});
    LedgerView::Epochs& row = view_->epochs[place->second];
    row.last_epoch = t.epoch;
    row.last_as_of = t.as_of;
    row.steps += t.steps;
    row.most_uses = std::max(row.most_uses, each.uses);
    row.most_spent = std::max(row.most_spent, each.most_spent);
  }

  using Key = std::tuple<std::string, std::string, std::uint64_t, std::uint64_t, std::uint64_t>;
  LedgerView* view_;
  std::vector<Open> open_;
  std::map<Key, std::size_t> rows_;
};

void take(LedgerView& view, Epochs& epochs, std::uint64_t position, const Entry& entry) {
  if (const auto* use = std::get_if<Use>(&entry)) {
    epochs.use(*use);
  } else if (const auto* terms = std::get_if<Terms>(&entry)) {
    epochs.open(position, *terms);
  } else if (std::holds_alternative<EpochEnd>(entry)) {
    epochs.end();
  } else if (const auto* refused = std::get_if<Refusals>(&entry)) {
    for (const auto& [reason, count] : refused->counts) view.refusals[reason] += count;
  } else if (const auto* withdrawal = std::get_if<Withdrawal>(&entry)) {
    if (++view.all_withdrawals <= kMostLedgerRows)
      view.withdrawals.push_back({position, *withdrawal});
  } else if (const auto* release = std::get_if<Release>(&entry)) {
    if (++view.all_releases <= kMostLedgerRows) view.releases.push_back({position, *release});
  }
}

}  // namespace

LedgerView view_ledger(const std::filesystem::path& file,
                       const std::optional<std::string>& last_seen) {
  Store store(file, Store::Mode::kRead);
  store.begin_snapshot();
  const Loaded loaded = load_verified(store, last_seen);
  const State& state = loaded.state;
  LedgerView view;
  view.header = state.header();
  view.size = state.size();
  view.checkpoints = state.counts().notes;
  view.note = loaded.note;
  view.summarised = state.counts().summarised;
  view.summarised_classes = state.last_summary().classes;
  for (const State::Contribution& c : state.contributions()) {
    LedgerView::Class& total = view.classes[state.class_name(c.class_index)];
    ++total.contributions;
    total.withdrawn += c.withdrawn ? 1 : 0;
    total.uses += c.uses;
    std::uint64_t& most =
        c.withdrawn && !state.has_plans() ? total.withdrawn_spent : total.most_spent;
    most = std::max(most, state.spend_of(c));
  }

  std::vector<cbor::Value> leaves, notes;
  for (auto note = store.next_note(0); note; note = store.next_note(note->size)) {
    view.bytes += note->text.size();
    if (view.bytes <= kMostEmbeddedBytes) notes.emplace_back(note->text);
  }
  Epochs epochs(view);
  Store::Leaves rows(store, 0);
  Store::Leaf leaf;
  for (std::uint64_t position = 0; position < view.size && rows.next(leaf); ++position) {
    view.bytes += leaf.summarised ? leaf.hash.size() : leaf.content.size();
    if (view.bytes <= kMostEmbeddedBytes || position == 0)
      leaves.push_back(leaf.summarised ? cbor::array({leaf.hash}) : cbor::Value(leaf.content));
    if (!leaf.summarised) take(view, epochs, position, decode_entry(leaf.content));
  }
  view.is_whole = view.bytes <= kMostEmbeddedBytes;
  if (!view.is_whole) {
    leaves.resize(1);
    notes.assign(1, view.note);
  }
  view.embedded =
      cbor::encode(cbor::array({"discreet-ledger-page-v1", view.size,
                                cbor::array(std::move(leaves)), cbor::array(std::move(notes))}));
  return view;
}

void require_extends(const std::filesystem::path& file, const std::string& note) {
  Store store(file, Store::Mode::kRead);
  store.begin_snapshot();
  static_cast<void>(load_verified(store, note));
}

std::optional<std::filesystem::path> ledger_of(const std::filesystem::path& run,
                                               const Config& config) {
  if (config.corpus.ledger) return std::filesystem::path(*config.corpus.ledger);
  // A file that the sealed configuration does not speak of may be from anyone.
  if (!config.corpus.policy) return std::nullopt;
  const std::filesystem::path own = run / "ledger.db";
  if (std::filesystem::exists(own)) return own;
  return std::nullopt;
}

std::optional<std::string> last_note_of(const std::filesystem::path& run, const Config& config) {
  const std::filesystem::path kept = run / "ledger.note";
  if (!std::filesystem::exists(kept)) {
    if (!config.corpus.policy) return std::nullopt;
    malformed("report",
              "{} does not exist, so a rollback of the ledger cannot be detected; restore the "
              "original file",
              kept.string());
  }
  const Bytes bytes = read_file(kept, 65536);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace discreet::report
