#include "discreet/ledger/withdrawal.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/opening_impl.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/spend.h"

namespace discreet::ledger {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "discreet-withdrawal-bundle-v1";

constexpr const char* kOperator = "withdraw";

Digest digest_from(std::string_view hex) {
  const Bytes bytes = from_hex(hex);
  Digest digest;
  if (bytes.size() != digest.size())
    invalid_input(kOperator, "a hash or key must have 64 hexadecimal digits");
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

// One part of a bundle: a leaf that its receipt places in the tree of the signed checkpoint.
class Parts {
 public:
  Parts(const Checkpoint& tree, const admission::PublicKey& key) : tree_(tree), key_(key) {}

  template <class T>
  T read(const json& part, const char* what) const {
    const Bytes leaf = from_hex(part.at("leaf").get<std::string>());
    Place place;
    if (!verify_inclusion_receipt(from_hex(part.at("receipt").get<std::string>()), leaf, key_,
                                  &place))
      invalid_input(kOperator, "the receipt of the {} does not hold", what);
    // The key may have signed other trees of this size: those of its other ledgers, or of a fork.
    if (place.size != tree_.size || place.root != tree_.root ||
        (!place.origin.empty() && place.origin != tree_.origin))
      invalid_input(kOperator, "the receipt of the {} belongs to another tree", what);
    const Entry entry = decode_entry(leaf);
    const T* found = std::get_if<T>(&entry);
    if (!found) invalid_input(kOperator, "the {} is a {}", what, name(entry));
    position_ = place.index;
    return *found;
  }
  std::uint64_t position() const { return position_; }  // of the part read last

 private:
  Checkpoint tree_;
  admission::PublicKey key_;
  mutable std::uint64_t position_ = 0;
};

BundleVerdict check(const json& bundle, const std::optional<LedgerKey>& expected) {
  BundleVerdict out;
  if (bundle.at("format") != kFormat) invalid_input(kOperator, "this is not a withdrawal bundle");
  const auto key =
      admission::PublicKey::from_bytes(from_hex(bundle.at("public_key").get<std::string>()));
  if (expected && expected->key != key)
    invalid_input(
        kOperator,
        "the bundle is signed by key {}, and the given key is {}; give the ledger's public key",
        to_hex(key.bytes()), to_hex(expected->key.bytes()));
  const auto text = [&](const char* name) { return bundle.at(name).get<std::string>(); };
  const std::string origin = text("origin");
  if (expected && !expected->is_of(origin))
    invalid_input(kOperator, "the key given is that of ledger {}, and the bundle is of {}",
                  expected->name, origin);
  const auto now = open_note(text("note"), {origin, key});
  const auto then = open_note(text("note_at_admission"), {origin, key});
  if (!now || !then)
    invalid_input(kOperator, "a checkpoint of the bundle is not signed by its key");
  if (now->origin != origin || then->origin != origin)
    invalid_input(kOperator, "a checkpoint of the bundle belongs to another ledger");
  if (!verify_consistency_receipt(from_hex(text("consistency")), *then, *now, key))
    invalid_input(kOperator, "the later tree does not extend that of the admission");

  const Parts parts(*now, key);
  const Header header = parts.read<Header>(bundle.at("header"), "header");
  if (parts.position() != 0 || header.origin != origin ||
      !std::ranges::equal(header.key, key.bytes()))
    invalid_input(kOperator, "the header belongs to another ledger");
  const Admission admitted = parts.read<Admission>(bundle.at("admission"), "admission");
  if (parts.position() >= then->size)
    invalid_input(kOperator, "the admission is later than its checkpoint");
  const Store::Opening opening{parts.position(), from_hex(text("descriptor")),
                               from_hex(text("attestation"))};
  require_opens(admitted, encode(admitted), opening, header);
  if (!attested(opening, admission::PublicKey::from_bytes(admitted.contributor)))
    invalid_input(kOperator, "the attestation is not signed by the contributor's key");

  const Withdrawal withdrawn = parts.read<Withdrawal>(bundle.at("withdrawal"), "withdrawal");
  const std::uint64_t withdrawn_at = parts.position();
  const auto signer = admission::PublicKey::from_bytes(withdrawn.key);
  const auto signature = admission::decode_signature(withdrawn.signature);
  if (withdrawn.descriptor != admitted.descriptor ||
      (withdrawn.key != admitted.contributor &&
       !std::binary_search(header.stewards.begin(), header.stewards.end(), withdrawn.key)) ||
      !admission::verifies(
          signature.message, signer,
          withdrawal_statement(origin, withdrawn.descriptor, withdrawn.reason, withdrawn.time)))
    invalid_input(kOperator, "the withdrawal does not belong to this contribution");
  std::map<std::string, std::uint64_t> first_use;  // by run
  std::vector<Terms> used;
  std::uint64_t last =
      0;  // of the uses, then of the releases: in the order of the ledger, none twice
  for (const json& item : bundle.at("uses")) {
    const Terms terms = parts.read<Terms>(item.at("terms"), "terms");
    const std::uint64_t terms_at = parts.position();
    const Use use = parts.read<Use>(item.at("use"), "use");
    if (use.terms != terms_at || use.contribution != admitted.number ||
        terms.admissibility_class != admitted.admissibility_class ||
        parts.position() > withdrawn_at || use.spend < out.spend)
      invalid_input(kOperator, "a use does not belong to this contribution before its withdrawal");
    if (parts.position() <= last) invalid_input(kOperator, "a use occurs twice, or out of order");
    last = parts.position();
    out.spend = use.spend;
    ++out.uses;
    first_use.try_emplace(terms.run, parts.position());
    used.push_back(terms);
  }
  out.spend = withdrawn_spend(header, admitted, used, out.spend);
  out.has_plans = header.schema >= 2;
  last = 0;
  for (const json& item : bundle.at("releases")) {
    const Release release = parts.read<Release>(item, "release");
    if (parts.position() <= last)
      invalid_input(kOperator, "a release occurs twice, or out of order");
    last = parts.position();
    const auto first = first_use.find(release.run);
    if (first == first_use.end() || parts.position() < first->second)
      invalid_input(kOperator,
                    "a release does not belong to a run that had used this contribution");
    out.affected.push_back(release);
    ++out.releases;
  }
  out.origin = origin;
  out.public_key = to_hex(key.bytes());
  out.descriptor = to_hex(admitted.descriptor);
  out.ok = true;
  return out;
}

}  // namespace

Withdrawal sign_withdrawal(const admission::SigningKey& key, std::string_view origin,
                           const Digest& descriptor, std::string reason, std::uint64_t time) {
  if (!is_note_name(origin))
    invalid_input(kOperator, "\"{}\" is not the name of a ledger; use the first line of its notes",
                  origin);
  if (reason.size() > 256)
    invalid_input(kOperator, "the reason has {} bytes; at most 256 are allowed", reason.size());
  Withdrawal out;
  out.descriptor = descriptor;
  out.time = time;
  const auto public_key = key.public_key();
  std::copy(public_key.bytes().begin(), public_key.bytes().end(), out.key.begin());
  out.signature = admission::sign(key, withdrawal_statement(origin, descriptor, reason, time));
  out.reason = std::move(reason);
  return out;
}

std::string write_deletion_event(const Withdrawal& w) {
  return json{{"descriptor", to_hex(w.descriptor)},
              {"reason", w.reason},
              {"time", w.time},
              {"public_key", to_hex(w.key)},
              {"signature", to_hex(w.signature)}}
             .dump() +
         "\n";
}

std::vector<Withdrawal> read_deletion_events(std::string_view lines) {
  std::vector<Withdrawal> out;
  std::size_t number = 0;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const json event = read_json(line, unique_names());
      Withdrawal& w = out.emplace_back();
      if (event.size() != 5) invalid_input(kOperator, "an event must have five members");
      w.descriptor = digest_from(event.at("descriptor").get<std::string>());
      w.reason = event.at("reason").get<std::string>();
      if (!event.at("time").is_number_unsigned())
        invalid_input(kOperator, "time must be in seconds since 1970");
      w.time = event.at("time").get<std::uint64_t>();
      w.key = digest_from(event.at("public_key").get<std::string>());
      w.signature = from_hex(event.at("signature").get<std::string>());
    } catch (const json::exception&) {
      invalid_input(kOperator,
                    "line {} is not a deletion event: expected a JSON object with descriptor, "
                    "reason, time, public_key and signature",
                    number);
    } catch (const Error& error) {
      invalid_input(kOperator, "line {} is not a deletion event: {}", number, error.sentence());
    }
  }
  return out;
}

std::string withdrawal_bundle(const std::filesystem::path& ledger, const admission::SigningKey& key,
                              const Digest& descriptor) {
  Store store(ledger, Store::Mode::kRead);
  store.begin_snapshot();
  const Trace found = trace(store, descriptor);
  if (!found.withdrawal)
    invalid_input(kOperator, "descriptor {} is not withdrawn", to_hex(descriptor));
  if (!found.admission)
    invalid_input(kOperator,
                  "the contribution was never admitted, or was summarised since, so its descriptor "
                  "cannot be opened");
  const auto opening = store.opening(found.admission->position);
  if (!opening) invalid_input(kOperator, "the ledger does not contain the descriptor");
  const auto last = store.last_note();
  const auto first = store.next_note(found.admission->position);
  const Tree tree = tree_of(store);
  if (!last || !first || tree.size() != last->size)
    malformed(kOperator, "the last entries of the ledger are not signed");
  const RangeHash range = [&](auto begin, auto end) { return tree.range(begin, end); };
  const Digest root = tree.range(0, last->size);
  const std::string origin = read_unverified(last->text).origin;
  // Receipts are signatures of this tree. A key signs no tree for which it did not sign a note: the
  // file may be from anyone, or have been replaced since it was verified.
  const auto now = open_note(last->text, {origin, key.public_key()});
  const auto then = open_note(first->text, {origin, key.public_key()});
  if (!now || !then || now->size != tree.size() || now->root != root)
    malformed(kOperator, "the ledger is not what this key signed; no receipt is given out");
  const auto part = [&](std::uint64_t position) {
    return json{
        {"leaf", to_hex(leaf_at(store, position))},
        {"receipt", to_hex(inclusion_receipt(key, origin, last->size, position,
                                             inclusion_proof(position, last->size, range), root))}};
  };
  json uses = json::array(), releases = json::array();
  for (const Trace::UseOf& use : found.uses)
    uses.push_back({{"terms", part(use.use.terms)}, {"use", part(use.position)}});
  for (const auto& release : found.releases) releases.push_back(part(release.position));
  const json bundle = {
      {"format", kFormat},
      {"origin", origin},
      {"public_key", to_hex(key.public_key().bytes())},
      {"note", last->text},
      {"note_at_admission", first->text},
      {"consistency",
       to_hex(consistency_receipt(key, origin, first->size, last->size,
                                  consistency_proof(first->size, last->size, range), root))},
      {"header", part(0)},
      {"descriptor", to_hex(opening->descriptor)},
      {"attestation", to_hex(opening->signature)},
      {"admission", part(found.admission->position)},
      {"uses", uses},
      {"withdrawal", part(found.withdrawal->position)},
      {"releases", releases},
  };
  return bundle.dump() + "\n";
}

BundleVerdict verify_bundle(std::string_view text, const std::optional<LedgerKey>& key) {
  BundleVerdict out;
  try {
    return check(read_json(text, unique_names()), key);
  } catch (const json::exception&) {
    out.problem = "the text is not a withdrawal bundle";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    out.problem = error.sentence();
  }
  return out;
}

}  // namespace discreet::ledger
