#include "discreet/ledger/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/ledger/opening_impl.h"

namespace discreet::ledger {
namespace {

using admission::PublicKey;

class Reading {
 public:
  Reading(Store& store, const VerifyOptions& options, Verification& where)
      : store_(store), options_(options), where_(where), openings_(store) {}

  Loaded run(bool to_last_note) {
    where_.kind = "file";
    to_last_note_ = to_last_note;
    store_.check_ranges();
    const auto last = store_.last_note();
    std::uint64_t end = ~std::uint64_t{0};
    if (to_last_note) {
      if (!last) fail("unsigned", "the ledger was never signed", 0);
      end = last->size;
    }
    advance_opening();
    next_note_ = store_.next_note(0);
    Store::Leaves leaves(store_, 0);
    Store::Leaf leaf;
    while (position() < end && leaves.next(leaf)) {
      if (leaf.position != position())
        fail("entry", fmt::format("entry {} is missing", position()), position());
      take(leaf);
      where_.kind = "file";
      if (options_.progress && position() % 65536 == 0) options_.progress(position());
    }
    finish(last);
    return std::move(loaded_);
  }

 private:
  std::uint64_t position() const { return loaded_.frontier.size(); }

  [[noreturn]] void fail(std::string kind, std::string problem,
                         std::optional<std::uint64_t> entry) {
    where_.kind = std::move(kind);
    where_.entry = entry;
    malformed("ledger", "{}", problem);
  }

  void take(const Store::Leaf& leaf) {
    where_.kind = "entry";
    where_.entry = position();
    if (leaf.summarised) {
      loaded_.state.take_summarised(leaf.hash);
      loaded_.frontier.append(leaf.hash);
    } else {
      const Entry entry = decode_entry(leaf.content);
      loaded_.state.take(entry);
      if (const auto* admitted = std::get_if<Admission>(&entry))
        check_opening(*admitted, leaf.content);
      if (position() == 0) check_key();
      loaded_.frontier.append(leaf_hash(leaf.content));
    }
    where_.entry.reset();
    if (next_note_ && next_note_->size == position()) check_note(leaf.ends_row);
    if (old_ && old_->size == position() && old_->root != loaded_.frontier.root())
      fail("fork",
           fmt::format("the first {} entries are not those of the earlier checkpoint", old_->size),
           std::nullopt);
  }

  void check_key() {
    const Header& header = loaded_.state.header();
    key_ = NoteKey{header.origin, PublicKey::from_bytes(header.key)};
    where_.header = header;
    if (options_.key && options_.key->key != key_->key)
      fail("signature",
           fmt::format("the header names public key {}, and the given key is {}; give the key of "
                       "this ledger's steward",
                       to_hex(key_->key.bytes()), to_hex(options_.key->key.bytes())),
           0);
    if (options_.key && !options_.key->is_of(header.origin))
      fail("signature",
           fmt::format("the key given is that of ledger {}, and this is {}", options_.key->name,
                       header.origin),
           0);
    if (options_.checkpoint) {
      old_ = open_note(*options_.checkpoint, *key_);
      if (!old_) fail("signature", "the earlier checkpoint is not signed by the ledger's key", {});
      if (old_->origin != header.origin)
        fail("signature", "the earlier checkpoint belongs to another ledger", {});
    }
  }

  void check_note(bool ends_row) {
    const std::uint64_t first = signed_;
    if (!ends_row) fail("file", "a row of the file extends beyond a checkpoint", position() - 1);
    const auto checkpoint = [&]() -> std::optional<Checkpoint> {
      try {
        return open_note(next_note_->text, *key_);
      } catch (const Error&) {
        return std::nullopt;
      }
    }();
    if (!checkpoint)
      fail(
          "signature",
          fmt::format("the checkpoint of {} entries is not signed by the ledger's key", position()),
          position() - 1);
    // Another encoding of the same signature would be another row: only the writer's encoding is
    // valid.
    if (std::count(next_note_->text.begin(), next_note_->text.end(), '\n') != 5)
      fail("signature", "a stored checkpoint has lines that the writer does not write",
           position() - 1);
    if (checkpoint->origin != key_->name || checkpoint->size != position() ||
        checkpoint->root != loaded_.frontier.root())
      fail("tree",
           fmt::format("one of the entries {} to {} is not the one that was signed", first,
                       position() - 1),
           first);
    where_.kind = "entry";
    loaded_.state.take_note(next_note_->text);
    loaded_.note = next_note_->text;
    where_.note = loaded_.note;
    signed_ = position();
    next_note_ = store_.next_note(position());
  }

  void advance_opening() { has_opening_ = openings_.next(opening_); }

  void check_opening(const Admission& admitted, ByteView content) {
    if (has_opening_ && opening_.position < position())
      fail("entry", "a descriptor is stored for a leaf that is not an admission",
           opening_.position);
    const bool here = has_opening_ && opening_.position == position();
    if (!here)
      fail("entry",
           fmt::format("the descriptor and the attestation of contribution {} are not stored; they "
                       "must be until it is summarised (rule 4)",
                       admitted.number),
           position());
    loaded_.state.begin_validity(
        require_opens(admitted, content, opening_, loaded_.state.header()));
    if (options_.attestations) {
      if (!attested(opening_, PublicKey::from_bytes(admitted.contributor)))
        fail("signature",
             fmt::format("contribution {} is not attested by its key", admitted.number),
             position());
      ++where_.attestations;
    }
    advance_opening();
  }

  void finish(const std::optional<Store::Note>& last) {
    where_.entry.reset();
    if (has_opening_ && opening_.position < position())
      fail("entry", "a descriptor is stored for a leaf that is not an admission",
           opening_.position);
    if (next_note_)
      fail("rollback",
           fmt::format("a checkpoint covers {} entries, but there are {}", next_note_->size,
                       position()),
           position());
    if (!last || last->size != position())
      fail("unsigned",
           fmt::format("the entries from {} on are not signed; if a writer is at work, verify "
                       "again when it is done; if it was killed, opening the ledger for writing "
                       "drops its entries",
                       last ? last->size : 0),
           last ? last->size : 0);
    if (has_opening_ && !to_last_note_)
      fail("entry", "a descriptor is stored beyond the last entry", opening_.position);
    where_.kind = "entry";
    loaded_.state.finish();
    if (old_ && old_->size > position())
      fail("rollback",
           fmt::format("the earlier checkpoint covers {} entries, but there are {}", old_->size,
                       position()),
           position());
    where_.kind = "file";
  }

  Store& store_;
  const VerifyOptions& options_;
  Verification& where_;
  Store::Openings openings_;
  Store::Opening opening_;
  bool has_opening_ = false;
  bool to_last_note_ = false;
  std::optional<NoteKey> key_;
  std::optional<Checkpoint> old_;
  std::optional<Store::Note> next_note_;
  std::uint64_t signed_ = 0;
  Loaded loaded_;
};

std::vector<ClassTotal> totals(const State& state) {
  std::map<std::string, ClassTotal> found;
  for (const State::Contribution& c : state.contributions()) {
    ClassTotal& total = found[state.class_name(c.class_index)];
    ++total.contributions;
    total.uses += c.uses;
    total.most_spent = std::max(total.most_spent, state.spend_of(c));
  }
  std::vector<ClassTotal> out;
  for (auto& [name, total] : found) {
    total.admissibility_class = name;
    out.push_back(total);
  }
  return out;
}

}  // namespace

Loaded load(Store& store, const VerifyOptions& options, bool to_last_note, Verification& where) {
  return Reading(store, options, where).run(to_last_note);
}

Verification verify(const std::filesystem::path& path, const VerifyOptions& options) {
  if (options.checkpoint) static_cast<void>(read_unverified(*options.checkpoint));
  Verification result;
  try {
    Store store(path, Store::Mode::kRead);
    store.begin_snapshot();
    return verify(store, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    result.kind = "file";
    result.problem = error.sentence();
  }
  return result;
}

Verification verify(Store& store, const VerifyOptions& options) {
  if (options.checkpoint) static_cast<void>(read_unverified(*options.checkpoint));
  Verification result;
  result.kind = "file";
  try {
    const Loaded loaded = load(store, options, false, result);
    result.counts = loaded.state.counts();
    result.size = loaded.frontier.size();
    result.root = loaded.frontier.root();
    result.histories = loaded.state.histories();
    result.classes = totals(loaded.state);
    result.summarised = loaded.state.last_summary().classes;
    store.check_pages();
    result.ok = true;
    result.kind.clear();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    result.problem = error.sentence();
  }
  return result;
}

RangeHash range_hash(Store& store) {
  return [&store](std::uint64_t begin, std::uint64_t end) {
    Frontier range;
    Store::Leaves leaves(store, begin);
    Store::Leaf leaf;
    while (begin + range.size() < end && leaves.next(leaf))
      range.append(leaf.summarised ? leaf.hash : leaf_hash(leaf.content));
    if (begin + range.size() != end)
      malformed("ledger", "entry {} is missing", begin + range.size());
    return range.root();
  };
}

}  // namespace discreet::ledger
