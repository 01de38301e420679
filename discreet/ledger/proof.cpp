#include "discreet/ledger/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/base/text/utf8.h"
#include "discreet/ledger/deletion_impl.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/store.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using nlohmann::json;

constexpr const char* kOperator = "proof";

Store::Note last_note(Store& store) {
  auto note = store.last_note();
  if (!note) invalid_input(kOperator, "the ledger was never signed");
  static_cast<void>(read_unverified(note->text));  // JSON holds no text that is not UTF-8
  return *std::move(note);
}

json proof_of(const Store::Note& note, const Path& path) {
  json hashes = json::array();
  for (const Digest& hash : path) hashes.push_back(to_hex(hash));
  return {{"note", note.text}, {"tree_size", note.size}, {"path", hashes}};
}

Digest digest_of(const json& hex) {
  const Bytes bytes = from_hex(hex.get<std::string>());
  Digest digest;
  if (bytes.size() != digest.size())
    invalid_input(kOperator, "a hash of the proof does not have 64 hexadecimal digits");
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

Path path_of(const json& proof) {
  Path path;
  for (const json& hash : proof.at("path")) path.push_back(digest_of(hash));
  return path;
}

std::uint64_t count_of(const json& proof, const char* name) {
  const json& value = proof.at(name);
  if (!value.is_number_unsigned()) invalid_input(kOperator, "{} of the proof is not a count", name);
  return value.get<std::uint64_t>();
}

ProofVerdict failed(ProofVerdict verdict, std::string problem) {
  verdict.ok = false;
  verdict.problem = std::move(problem);
  return verdict;
}

bool opens(const json& opening, const Digest& commitment) try {
  const auto records = opening.at("records").get<std::vector<std::uint64_t>>();
  return opening.size() == 3 && json(records) == opening.at("records") &&
         deletion_commitment(from_hex(opening.at("salt").get<std::string>()),
                             opening.at("subject").get<std::string>(), records) == commitment;
} catch (const json::exception&) {
  return false;
} catch (const Error&) {
  return false;
}

// What the members of a line say beyond what was signed; empty if nothing. Every member is compared
// here or was used by check(): an unknown member could be mistaken for a proven one.
std::string contradiction(const json& line, const ProofVerdict& found, const LedgerKey& key) {
  json signed_members = {{"public_key", to_hex(key.key.bytes())}, {"tree_size", found.size}};
  // Receipts of version 0.1.0 name no ledger.
  if (const std::string& origin = found.origin.empty() ? key.name : found.origin; !origin.empty())
    signed_members["origin"] = origin;
  std::set<std::string> used = {"note", "path"};
  if (line.contains("receipt")) used = {"receipt"};
  if (found.from_size) used.insert("from_size");
  if (found.entry) used.insert({"entry", "leaf_hash", "leaf"});
  if (found.origin.empty()) used.insert("origin");
  std::optional<Deletion> deletion;
  if (found.leaf) {
    signed_members["leaf_hash"] = to_hex(leaf_hash(*found.leaf));
    const Entry entry = decode_entry(*found.leaf);
    if (const auto* is_deletion = std::get_if<Deletion>(&entry)) deletion = *is_deletion;
  }
  if (deletion) {
    signed_members.update(plain_members(*deletion));
    used.insert("opening");
  }
  for (const auto& [name, value] : line.items()) {
    if (signed_members.contains(name)) {
      if (value != signed_members.at(name))
        return fmt::format("{} is {}, and what was signed is {}", name, value.dump(),
                           signed_members.at(name).dump());
    } else if (!used.contains(name)) {
      return fmt::format(
          "the proof has the member {}, of which nothing was signed; remove it if you do not rely "
          "on it",
          excerpt(name));
    }
  }
  if (deletion && line.contains("opening") && !opens(line.at("opening"), deletion->commitment))
    return "the opening (salt, subject and records) is not that of the signed commitment";
  return {};
}

ProofVerdict check_receipt(const json& line, const admission::PublicKey& key) {
  ProofVerdict out;
  if (!line.contains("leaf"))
    invalid_input(kOperator,
                  "the line contains only the hash of its entry, which was summarised; anyone who "
                  "kept the entry can add it as \"leaf\"");
  out.leaf = from_hex(line.at("leaf").get<std::string>());
  Place place;
  if (!verify_inclusion_receipt(from_hex(line.at("receipt").get<std::string>()), *out.leaf, key,
                                &place))
    return failed(out,
                  "the receipt does not belong to this entry, or is not signed by the given key; "
                  "check that it is "
                  "the ledger's");
  out.origin = place.origin;
  out.size = place.size;
  out.entry = place.index;
  if (line.contains("entry") && count_of(line, "entry") != place.index)
    return failed(out, fmt::format("the receipt is for entry {}", place.index));
  out.ok = true;
  return out;
}

ProofVerdict check(const json& proof, const admission::PublicKey& key,
                   const std::optional<std::string>& earlier_note) {
  if (proof.contains("receipt")) return check_receipt(proof, key);
  ProofVerdict out;
  const std::string note = proof.at("note").get<std::string>();
  const NoteKey signer{read_unverified(note).origin, key};
  const auto now = open_note(note, signer);
  if (!now)
    return failed(out, "the note is not signed by the given key; check that it is the ledger's");
  out.origin = now->origin;
  out.size = now->size;
  const Path path = path_of(proof);
  if (proof.contains("from_size")) {
    out.from_size = count_of(proof, "from_size");
    if (!earlier_note)
      invalid_input(kOperator,
                    "the proof refers to an earlier checkpoint: pass the note that you kept of it");
    const auto then = open_note(*earlier_note, signer);
    if (!then) return failed(out, "the earlier checkpoint is not signed by this key and name");
    if (then->size != *out.from_size)
      return failed(out,
                    fmt::format("the proof starts at {} entries, but the earlier checkpoint has {}",
                                *out.from_size, then->size));
    if (!verify_consistency(then->size, then->root, now->size, now->root, path))
      return failed(out, "the ledger does not extend the earlier checkpoint");
  } else {
    out.entry = count_of(proof, "entry");
    const Digest hash = digest_of(proof.at("leaf_hash"));
    if (proof.contains("leaf")) {
      out.leaf = from_hex(proof.at("leaf").get<std::string>());
      if (leaf_hash(*out.leaf) != hash)
        return failed(out, "the entry does not match its leaf hash");
    }
    if (!verify_inclusion(hash, *out.entry, now->size, path, now->root))
      return failed(
          out, fmt::format("the path does not lead from entry {} to the signed root", *out.entry));
  }
  out.ok = true;
  return out;
}

}  // namespace

std::string prove_entry(const std::filesystem::path& ledger, std::uint64_t entry) {
  Store store(ledger, Store::Mode::kRead);
  store.begin_snapshot();
  const Store::Note note = last_note(store);
  if (entry >= note.size)
    invalid_input(kOperator, "entry {} does not exist; the ledger has {} entries, numbered from 0",
                  entry, note.size);
  json out = proof_of(note, inclusion_proof(entry, note.size, range_hash(store)));
  Store::Leaves leaves(store, entry);
  Store::Leaf leaf;
  if (!leaves.next(leaf) || leaf.position != entry)
    malformed(kOperator, "entry {} is missing", entry);
  out["entry"] = entry;
  if (!leaf.summarised) out["leaf"] = to_hex(leaf.content);
  out["leaf_hash"] = to_hex(leaf.summarised ? leaf.hash : leaf_hash(leaf.content));
  return out.dump();
}

std::string prove_consistency(const std::filesystem::path& ledger, std::uint64_t from_size) {
  Store store(ledger, Store::Mode::kRead);
  store.begin_snapshot();
  const Store::Note note = last_note(store);
  if (from_size == 0 || from_size > note.size)
    invalid_input(kOperator,
                  "the earlier size {} is not between 1 and the {} entries of the ledger",
                  from_size, note.size);
  json out = proof_of(note, consistency_proof(from_size, note.size, range_hash(store)));
  out["from_size"] = from_size;
  return out.dump();
}

ProofVerdict verify_proof(std::string_view text, const LedgerKey& key,
                          const std::optional<std::string>& earlier_note) {
  if (earlier_note) static_cast<void>(read_unverified(*earlier_note));
  const char* kForm =
      "this is not a proof; give a proof of `discreet ledger prove` or a receipt, or verify a "
      "ledger with `discreet ledger verify`";
  try {
    const json proof = read_json(text, unique_names());
    ProofVerdict found = check(proof, key.key, earlier_note);
    if (!found.ok) return found;
    if (!found.origin.empty() && !key.is_of(found.origin))
      return failed(found, fmt::format("the key given is that of ledger {}, and this is {}",
                                       key.name, found.origin));
    if (std::string problem = contradiction(proof, found, key); !problem.empty())
      return failed(found, std::move(problem));
    return found;
  } catch (const json::exception&) {
    invalid_input(kOperator, "{}", kForm);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMalformed) throw;
    invalid_input(kOperator, "{} ({})", kForm, error.sentence());
  }
}

}  // namespace discreet::ledger
