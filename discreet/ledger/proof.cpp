#include "discreet/ledger/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/store.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string sentence) {
  throw Error(ErrorCode::kInvalidInput, "proof", std::move(sentence));
}

Store::Note last_note(Store& store) {
  auto note = store.last_note();
  if (!note) refuse("the ledger was never signed");
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
  if (bytes.size() != digest.size()) refuse("a hash of the proof is not 64 hexadecimal digits");
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
  if (!value.is_number_unsigned()) refuse(fmt::format("{} of the proof is no count", name));
  return value.get<std::uint64_t>();
}

ProofVerdict failed(ProofVerdict verdict, std::string problem) {
  verdict.ok = false;
  verdict.problem = std::move(problem);
  return verdict;
}

ProofVerdict check_receipt(const json& line, const admission::PublicKey& key) {
  ProofVerdict out;
  if (!line.contains("leaf"))
    refuse(
        "the line has only the hash of its entry, which was summarised; whoever kept the "
        "entry can put it in as \"leaf\"");
  out.leaf = from_hex(line.at("leaf").get<std::string>());
  Place place;
  if (!verify_inclusion_receipt(from_hex(line.at("receipt").get<std::string>()), *out.leaf, key,
                                &place))
    return failed(out, "the receipt is not of this entry, or not signed by this key");
  out.origin = place.origin;
  out.size = place.size;
  out.entry = place.index;
  if (line.contains("entry") && count_of(line, "entry") != place.index)
    return failed(out, fmt::format("the receipt is of entry {}", place.index));
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
  if (!now) return failed(out, "the note is not signed by this key");
  out.origin = now->origin;
  out.size = now->size;
  const Path path = path_of(proof);
  if (proof.contains("from_size")) {
    out.from_size = count_of(proof, "from_size");
    if (!earlier_note)
      refuse("the proof is about an earlier checkpoint: give the note that you kept of it");
    const auto then = open_note(*earlier_note, signer);
    if (!then) return failed(out, "the earlier checkpoint is not signed by this key and name");
    if (then->size != *out.from_size)
      return failed(out, fmt::format("the proof is from {} entries, the earlier checkpoint has {}",
                                     *out.from_size, then->size));
    if (!verify_consistency(then->size, then->root, now->size, now->root, path))
      return failed(out, "the ledger does not extend the earlier checkpoint");
  } else {
    out.entry = count_of(proof, "entry");
    const Digest hash = digest_of(proof.at("leaf_hash"));
    if (proof.contains("leaf")) {
      out.leaf = from_hex(proof.at("leaf").get<std::string>());
      if (leaf_hash(*out.leaf) != hash) return failed(out, "the entry does not have its leaf hash");
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
    refuse(
        fmt::format("there is no entry {}; the ledger has {}, counted from 0", entry, note.size));
  json out = proof_of(note, inclusion_proof(entry, note.size, range_hash(store)));
  Store::Leaves leaves(store, entry);
  Store::Leaf leaf;
  if (!leaves.next(leaf) || leaf.position != entry)
    throw Error(ErrorCode::kMalformed, "proof", fmt::format("entry {} is missing", entry));
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
    refuse(fmt::format("the earlier size {} is not between 1 and the {} entries there are",
                       from_size, note.size));
  json out = proof_of(note, consistency_proof(from_size, note.size, range_hash(store)));
  out["from_size"] = from_size;
  return out.dump();
}

ProofVerdict verify_proof(std::string_view text, const admission::PublicKey& key,
                          const std::optional<std::string>& earlier_note) {
  if (earlier_note) static_cast<void>(read_unverified(*earlier_note));
  const char* kForm = "this is no proof: one JSON object, as `discreet ledger prove` prints it";
  try {
    return check(read_json(text), key, earlier_note);
  } catch (const json::exception&) {
    refuse(kForm);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMalformed) throw;
    refuse(fmt::format("{} ({})", kForm, error.sentence()));
  }
}

}  // namespace discreet::ledger
