#include "discreet/ledger/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "discreet/admission/descriptor.h"
#include "discreet/base/error.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/opening_impl.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

constexpr const char* kOperator = "ledger";

RawKey raw(const admission::PublicKey& key) {
  RawKey bytes;
  std::copy(key.bytes().begin(), key.bytes().end(), bytes.begin());
  return bytes;
}

}  // namespace

Ledger Ledger::create(const std::filesystem::path& path, Header header, ByteView policy,
                      admission::SigningKey key) {
  header.key = raw(key.public_key());
  header.policy = sha256(policy);
  std::sort(header.stewards.begin(), header.stewards.end());
  State().take(Entry(header));  // an invalid header is rejected before a file exists
  // Created under another name, which no other user of the folder can guess, so that nobody ever
  // finds a ledger that is not signed.
  const std::filesystem::path made =
      path.string() + fmt::format(".{}.new", to_hex(admission::fresh_nonce()));
  std::error_code ignored;
  try {
    Ledger ledger(Store(made, Store::Mode::kCreate), std::move(key));
    ledger.write([&](const Add& add, Store::Batch&) {
      add(header);
      add(Policy{Bytes(policy.begin(), policy.end())});
    });
    ledger.store_.move_to(path);
    return ledger;
  } catch (...) {
    std::filesystem::remove(made, ignored);
    throw;
  }
}

Ledger Ledger::open(const std::filesystem::path& path, admission::SigningKey key,
                    std::optional<std::string> last_seen, int patience_ms) {
  Ledger ledger(Store(path, Store::Mode::kWrite, patience_ms), std::move(key));
  ledger.reload(std::move(last_seen));
  return ledger;
}

void Ledger::reload(std::optional<std::string> last_seen) {
  VerifyOptions options;
  options.key = key_.public_key();
  options.checkpoint = std::move(last_seen);
  options.attestations = false;
  Verification where;
  Loaded loaded = [&] {
    try {
      return load(store_, options, true, where);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIoError || !where.entry) throw;
      fail(error.code(), error.op(), "the ledger does not verify at entry {}: {}", *where.entry,
           error.sentence());
    }
  }();
  store_.discard_from(loaded.frontier.size());
  state_ = std::move(loaded.state);
  frontier_ = std::move(loaded.frontier);
  note_ = std::move(loaded.note);
  stale_ = false;
}

void Ledger::let_go() {
  store_.let_go();
  away_ = true;
}

void Ledger::refresh() {
  if (away_) {
    store_.take_up(kPatience);
    away_ = false;
    const auto last = store_.last_note();
    if (!last || last->text != note_)
      reload(note_);
    else
      store_.discard_from(frontier_.size());
  }
  if (stale_) reload();
}

void Ledger::write(const Build& build, const Removed& removed) {
  stale_ = true;
  try {
    append_and_sign(build, removed);
    if (!removed.empty()) reload();
    stale_ = false;
  } catch (...) {
    try {  // back to what is signed
      if (frontier_.size() != 0) reload();
    } catch (const Error&) {  // the next operation tries again
    }
    throw;
  }
}

void Ledger::append_and_sign(const Build& build, const Removed& removed) {
  Store::Batch batch;
  const std::uint64_t first = frontier_.size();
  const Add add = [&](const Entry& entry) {
    state_.take(entry);
    if (const auto* use = std::get_if<Use>(&entry)) {
      std::uint8_t bytes[32];
      batch.add({bytes, encode_use(*use, bytes)});
    } else {
      batch.add(encode(entry));
    }
  };
  if (first != 0) add(Signed{sha256(bytes_of(note_))});
  build(add, batch);
  store_.append(first, batch);

  store_.reread();
  {
    Store::Leaves leaves(store_, first);
    Store::Leaf leaf;
    std::size_t read = 0;
    for (; leaves.next(leaf); ++read) {
      if (read == batch.ends.size() || leaf.position != first + read || leaf.summarised ||
          !std::ranges::equal(leaf.content, batch.leaf(read)))
        io_error(kOperator, "entry {} was altered when read back from disk; nothing was signed",
                 first + read);
    }
    if (read != batch.ends.size())
      io_error(kOperator, "entries could not be read back from disk; nothing was signed");
  }
  Frontier frontier = frontier_;
  frontier.append(
      batch.ends.size(), [&](std::size_t i) { return batch.leaf(i); },
      static_cast<int>(std::thread::hardware_concurrency()));
  const Store::Note note{
      frontier.size(), sign_note({state_.header().origin, frontier.size(), frontier.root()}, key_)};
  store_.sign(note, removed);
  state_.take_note(note.text);
  frontier_ = std::move(frontier);
  note_ = note.text;
}

std::vector<Store::Opening> Ledger::openings_of(std::span<const Contribution> contributions) {
  std::vector<Store::Opening> openings;
  openings.reserve(contributions.size());
  for (const Contribution& c : contributions) {
    Store::Opening opening{0, c.descriptor, c.attestation};
    if (!c.verified && !attested(opening, c.key))
      invalid_input(kOperator, "the attestation of descriptor {} is not signed by the given key",
                    to_hex(sha256(c.descriptor)));
    openings.push_back(std::move(opening));
  }
  return openings;
}

void Ledger::add_admissions(std::span<const Contribution> contributions, const Refusals& refusals,
                            std::vector<Store::Opening> openings, const Add& add,
                            Store::Batch& batch) {
  for (std::size_t i = 0; i < openings.size(); ++i) {
    openings[i].position = state_.size();
    const Opened opened =
        admission_of(state_.header(), state_.next_number(), openings[i], raw(contributions[i].key),
                     contributions[i].least_multiplier);
    add(opened.leaf);
    state_.begin_validity(opened.not_before);
  }
  if (!refusals.counts.empty()) add(refusals);
  batch.openings = std::move(openings);
}

void Ledger::admit(std::span<const Contribution> contributions, const Refusals& refusals) {
  refresh();
  if (contributions.empty() && refusals.counts.empty()) return;
  std::vector<Store::Opening> openings = openings_of(contributions);
  write([&](const Add& add, Store::Batch& batch) {
    add_admissions(contributions, refusals, std::move(openings), add, batch);
  });
}

bool Ledger::reserve_epoch(const std::string& run, std::uint64_t epoch, std::uint64_t as_of,
                           std::vector<Terms> terms, std::span<const Contribution> admitted,
                           const Refusals& refusals) {
  refresh();
  if (epoch < state_.next_epoch(run)) return false;
  if (epoch > state_.next_epoch(run))
    invalid_input(kOperator, "epoch {} of run {} was not reserved; reserve epochs in order",
                  state_.next_epoch(run), run);
  if (terms.empty()) invalid_input(kOperator, "an epoch needs the terms of at least one class");
  std::sort(terms.begin(), terms.end(), [](const Terms& a, const Terms& b) {
    return a.admissibility_class < b.admissibility_class;
  });
  std::vector<Store::Opening> openings = openings_of(admitted);
  write([&](const Add& add, Store::Batch& batch) {
    add_admissions(admitted, refusals, std::move(openings), add, batch);
    for (Terms& t : terms) {
      t.run = run;
      t.epoch = epoch;
      t.as_of = as_of;
      if (!state_.has_plans()) t.planned_steps = 0;
      add(t);
    }
    std::uint64_t uses = 0;
    std::size_t from = 0;
    while (const auto due = state_.next_due(from)) {
      add(due->use);
      from = due->index + 1;
      ++uses;
    }
    add(EpochEnd{run, epoch, uses});
  });
  return true;
}

std::optional<std::string> Ledger::objection(const Withdrawal& w) {
  refresh();
  if (auto why_not = state_.objection(w)) return why_not;
  if (!state_.find(w.descriptor) && !std::ranges::binary_search(state_.header().stewards, w.key))
    return fmt::format("descriptor {} is not in the ledger; only a steward can withdraw it",
                       to_hex(w.descriptor));
  return std::nullopt;
}

std::size_t Ledger::withdraw(std::span<const Withdrawal> withdrawals) {
  refresh();
  std::vector<const Withdrawal*> fresh;
  for (const Withdrawal& w : withdrawals) {
    const auto same = [&](const Withdrawal* other) { return other->descriptor == w.descriptor; };
    if (state_.is_withdrawn(w.descriptor) || std::any_of(fresh.begin(), fresh.end(), same))
      continue;
    if (const auto why_not = objection(w)) invalid_input(kOperator, "{}", *why_not);
    fresh.push_back(&w);
  }
  if (fresh.empty()) return 0;
  write([&](const Add& add, Store::Batch&) {
    for (const Withdrawal* w : fresh) add(*w);
  });
  return fresh.size();
}

bool Ledger::summarise(std::uint64_t now) {
  refresh();
  const std::uint64_t retention = state_.header().retention;
  if (now < retention) return false;
  const std::uint64_t horizon = now - retention;
  const auto due = [&](std::uint64_t number) {
    const auto& all = state_.contributions();
    const auto at = std::lower_bound(all.begin(), all.end(), number,
                                     [](const auto& c, std::uint64_t n) { return c.number < n; });
    return at != all.end() && at->number == number && state_.is_due_for_summary(*at, horizon);
  };
  if (std::none_of(state_.contributions().begin(), state_.contributions().end(),
                   [&](const auto& c) { return state_.is_due_for_summary(c, horizon); }))
    return false;
  Summary summary = state_.summary(horizon);
  std::vector<std::pair<std::uint64_t, Digest>> removed;
  {
    Sha256 digest;
    summary.leaves = 0;
    Store::Leaves leaves(store_, 0);
    Store::Leaf leaf;
    while (leaves.next(leaf)) {
      bool covered = leaf.summarised;
      Digest hash = leaf.hash;
      if (!leaf.summarised) {
        const Entry entry = decode_entry(leaf.content);
        const auto* admitted = std::get_if<Admission>(&entry);
        const auto* use = std::get_if<Use>(&entry);
        covered = (admitted && due(admitted->number)) || (use && due(use->contribution));
        if (covered) {
          hash = leaf_hash(leaf.content);
          removed.emplace_back(leaf.position, hash);
        }
      }
      if (!covered) continue;
      std::uint8_t position[8];
      for (int i = 0; i < 8; ++i)
        position[i] = static_cast<std::uint8_t>(leaf.position >> (56 - 8 * i));
      digest.update(position).update(hash);
      ++summary.leaves;
    }
    summary.digest = digest.finish();
  }
  write([&](const Add& add, Store::Batch&) { add(summary); }, removed);
  return true;
}

std::size_t Ledger::record_deletions(std::span<const Deletion> deletions) {
  refresh();
  if (deletions.empty()) return 0;
  const std::uint64_t there = state_.next_deletion(deletions.front().model);
  while (!deletions.empty() && deletions.front().number < there) deletions = deletions.subspan(1);
  if (deletions.empty()) return 0;
  if (deletions.front().number != there)
    invalid_input(kOperator, "deletion {} of {} is missing before deletion {}", there,
                  deletions.front().model, deletions.front().number);
  write([&](const Add& add, Store::Batch&) {
    for (const Deletion& deletion : deletions) add(deletion);
  });
  return deletions.size();
}

std::vector<Ledger::Placed> Ledger::receipts(std::span<const Bytes> leaves) {
  refresh();
  std::map<Digest, std::optional<std::uint64_t>> wanted;
  for (const Bytes& leaf : leaves) wanted[leaf_hash(leaf)];
  Tree tree;
  Store::Leaves there(store_, 0);
  for (Store::Leaf leaf; tree.size() < frontier_.size() && there.next(leaf);) {
    const Digest hash = leaf.summarised ? leaf.hash : leaf_hash(leaf.content);
    if (const auto at = wanted.find(hash); at != wanted.end()) at->second = tree.size();
    tree.append(hash);
  }
  const auto range = [&](std::uint64_t begin, std::uint64_t end) { return tree.range(begin, end); };
  std::vector<Placed> out;
  for (const Bytes& leaf : leaves) {
    const auto position = wanted.at(leaf_hash(leaf));
    if (!position)
      invalid_input(kOperator, "an entry is not in the ledger, so there is no receipt for it");
    out.push_back(
        {*position,
         inclusion_receipt(key_, state_.header().origin, tree.size(), *position,
                           inclusion_proof(*position, tree.size(), range), frontier_.root())});
  }
  return out;
}

void Ledger::release(const std::string& run, const Digest& manifest) {
  refresh();
  write([&](const Add& add, Store::Batch&) { add(Release{run, manifest}); });
}

}  // namespace discreet::ledger
