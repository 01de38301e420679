#include "discreet/training/corpus_ledger.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "discreet/admission/key_file.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"

namespace discreet::training {
namespace {

constexpr const char* kOperator = "corpus";

ledger::RawKey raw(const admission::PublicKey& key) {
  ledger::RawKey out;
  std::copy(key.bytes().begin(), key.bytes().end(), out.begin());
  return out;
}

std::optional<std::uint64_t> amplified_delta(const admission::Policy& policy) {
  std::optional<std::uint64_t> out;
  for (const auto& [name, c] : policy.classes) {
    if (!c.amplified) continue;
    const std::uint64_t delta =
        c.amplified->delta.units * static_cast<std::uint64_t>(ledger::kNano);
    if (out && *out != delta)
      invalid_config(
          kOperator,
          "all amplified classes of a corpus must have the same delta: that of the ledger");
    out = delta;
  }
  return out;
}

ledger::Header header_of(const admission::Policy& policy, const Config& config) {
  if (!ledger::is_note_name(policy.corpus))
    invalid_config(
        kOperator,
        "the corpus is named '{}', but the name of a ledger must not contain spaces or plus signs",
        policy.corpus);
  ledger::Header out;
  out.origin = policy.corpus;
  out.accountant = std::string(to_string(policy.accountant));
  out.delta = amplified_delta(policy).value_or(
      static_cast<std::uint64_t>(std::llround(config.privacy.target_delta * ledger::kAtto)));
  out.adjacency = accounting::Adjacency::kZeroOut;
  out.clip_floor = policy.clip_norm_floor.units;
  out.multiplier_floor = policy.noise_multiplier_floor.units;
  out.depth_profile_schema = admission::kProfileSchema;
  out.retention = policy.epoch_seconds * policy.retention_epochs;
  if (policy.authority) out.stewards = {raw(*policy.authority)};
  return out;
}

admission::SigningKey key_of(const CorpusConfig& corpus) {
  if (!corpus.ledger_key)
    invalid_config(kOperator,
                   "corpus.ledger_key is missing: it signs the ledger; create one with 'discreet "
                   "keygen steward' and set corpus.ledger_key: steward.key");
  const SecretBytes pem = read_secret(*corpus.ledger_key);
  const std::string_view text = text_of(pem);
  if (admission::SigningKey::is_encrypted(text))
    invalid_config(
        kOperator,
        "{} has a passphrase, which a run cannot ask for; use a key without a passphrase",
        *corpus.ledger_key);
  admission::require_private(*corpus.ledger_key, text);
  return admission::SigningKey::from_pem(text);
}

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

// Times in the ledger are whole hours: how long an epoch took is not recorded.
constexpr std::uint64_t kHour = 3600;
std::uint64_t begin_of_hour() { return now() / kHour * kHour; }
// A contribution that ends in this hour is excluded.
std::uint64_t end_of_hour() { return (now() + kHour - 1) / kHour * kHour; }

std::optional<std::string> kept_note(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Bytes bytes = read_file(path, 1 << 16);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

CorpusLedger::CorpusLedger(const Config& config, const admission::Policy& policy,
                           std::filesystem::path note, bool append)
    : note_(std::move(note)), policy_(encode(policy)) {
  const CorpusConfig& corpus = config.corpus;
  if (!corpus.ledger)
    invalid_config(kOperator, "corpus.ledger is missing: set the file of the ledger");
  file_ = *corpus.ledger;
  header_ = header_of(policy, config);
  kept_ = kept_note(note_);
  if (append && !kept_ && std::filesystem::exists(note_.parent_path() / "checkpoint.cbor"))
    malformed(kOperator,
              "{} is missing, but the run has a checkpoint: without the note, a rolled back ledger "
              "could not be detected; restore it",
              note_.string());
  if (!append) {
    ledger::Store store(file_, ledger::Store::Mode::kRead);
    store.begin_snapshot();
    ledger::VerifyOptions options;
    options.attestations = false;
    ledger::Verification where;
    read_ = ledger::load(store, options, true, where).state;
  } else if (std::filesystem::exists(file_)) {
    ledger_.emplace(ledger::Ledger::open(file_, key_of(corpus), kept_));
  } else if (kept_) {
    refuse_missing();
  } else {
    key_ = key_of(corpus);
    header_.stewards.push_back(raw(key_->public_key()));
    std::sort(header_.stewards.begin(), header_.stewards.end());
    header_.stewards.erase(std::unique(header_.stewards.begin(), header_.stewards.end()),
                           header_.stewards.end());
    return;
  }
  const ledger::Header& there = state().header();
  if (there.policy != sha256(policy_))
    invalid_config(kOperator,
                   "{} was created under policy {}, but this is {}; another contract needs another "
                   "ledger: set another corpus.ledger",
                   file_.string(), to_hex(there.policy), to_hex(sha256(policy_)));
  if (amplified_delta(policy) && there.delta != header_.delta)
    invalid_config(kOperator, "{} has another delta than the amplified classes", file_.string());
  header_ = there;
}

void CorpusLedger::refuse_missing() const {
  malformed(kOperator, "{} is missing, but the run has a note of it ({}); restore the ledger",
            file_.string(), note_.string());
}

void CorpusLedger::require_extends(const std::string& note) {
  if (kept_ == note) return;  // the ledger was opened with it
  if (key_) refuse_missing();
  if (ledger_) ledger_->require_extends(note);
}

void CorpusLedger::make() {
  try {
    ledger_.emplace(ledger::Ledger::create(file_, header_, policy_, std::move(*key_)));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidInput) throw;
    io_error(kOperator, "another run has just created {}; start again", file_.string());
  }
  key_.reset();
}

std::set<Digest> CorpusLedger::withdrawn_before(const std::string& run) const {
  const auto& epochs = state().epochs(run);
  std::set<Digest> out;
  for (const auto& [descriptor, position] : state().withdrawals())
    if (epochs.empty() || position < epochs[0].position) out.insert(descriptor);
  return out;
}

bool CorpusLedger::holds(const Digest& descriptor) const {
  return state().find(descriptor) != nullptr;
}

void CorpusLedger::require_recent(const std::string& run, std::uint64_t at,
                                  std::uint64_t epoch_seconds) const {
  const bool appends = ledger_ || key_;
  if (!appends || !state().epochs(run).empty()) return;
  constexpr std::uint64_t kDay = 86'400;  // clocks, time zones and runs that wait for a machine
  const std::uint64_t today = now();
  if (at > today + kDay)
    invalid_config(
        kOperator,
        "corpus.at is {}, and now it is {}: consent that is not valid yet would be used. "
        "Set corpus.at to the date of the run",
        admission::instant_text(static_cast<admission::Instant>(at)),
        admission::instant_text(static_cast<admission::Instant>(today)));
  if (at + std::max(epoch_seconds, kDay) >= today) return;
  invalid_config(
      kOperator,
      "corpus.at is {}, but now it is {}: contributions that ended in between would be used. Set "
      "corpus.at to the date of the run; only --resume and replay may use an earlier date",
      admission::instant_text(static_cast<admission::Instant>(at)),
      admission::instant_text(static_cast<admission::Instant>(today)));
}

void CorpusLedger::reserve(Reservation r, std::vector<ledger::Ledger::Contribution> admitted,
                           const ledger::Refusals& refused) {
  if (key_) make();
  if (ledger_) ledger_->refresh();
  if (r.epoch < state().next_epoch(r.run)) {
    if (ledger_) keep_note(state().epochs(r.run)[r.epoch].position);
    return;
  }
  if (!ledger_)
    invalid_input(
        kOperator,
        "epoch {} of run {} is not in the ledger, and executing a run again appends nothing",
        r.epoch, r.run);
  const std::uint64_t as_of = std::max({r.at, state().last_as_of(), end_of_hour()});
  if (r.epoch != 0) admitted.clear();
  std::erase_if(admitted, [&](const ledger::Ledger::Contribution& c) {
    const auto ends = admission::decode_descriptor(c.descriptor).not_after;
    return state().find(sha256(c.descriptor)) != nullptr ||
           static_cast<std::uint64_t>(ends) <= as_of;
  });
  ledger_->reserve_epoch(r.run, r.epoch, as_of, std::move(r.terms), admitted,
                         r.epoch == 0 ? refused : ledger::Refusals());
  ledger_->summarise(begin_of_hour());
  keep_note(state().epochs(r.run).back().position);
}

// Keeps a note that covers the epoch at `position`. A killed process may not have written it.
void CorpusLedger::keep_note(std::uint64_t position) {
  if (!kept_ || ledger::read_unverified(*kept_).size <= position) {
    write_atomically(note_, bytes_of(ledger_->note()));
    kept_ = ledger_->note();
  }
  ledger_->let_go();
}

bool CorpusLedger::takes_part(const std::string& run, std::uint64_t epoch, const Digest& descriptor,
                              admission::Instant not_after) const {
  const ledger::State::Epoch& at = state().epochs(run).at(epoch);
  const auto ends = static_cast<std::uint64_t>(not_after);
  if (ends <= at.as_of) return false;
  const ledger::State::Contribution* found = state().find(descriptor);
  const bool is_summarised = found == nullptr && ends <= state().last_summary().horizon;
  if (found == nullptr ? !is_summarised : found->number >= at.admitted) return false;
  const auto withdrawn = state().withdrawals().find(descriptor);
  return withdrawn == state().withdrawals().end() || withdrawn->second > at.position;
}

}  // namespace discreet::training
