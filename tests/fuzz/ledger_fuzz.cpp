// Properties of what discreet/ledger reads, whatever the bytes. The first byte chooses what they
// are:
//   entry    decode throws kMalformed, or encodes back to the same bytes and can be described
//   note     read throws kMalformed; none but the honest checkpoints open under the ledger's key
//   proof    throws kInvalidInput, or holds only for entries of the honest ledger
//   bundle   verifies only if all it tells is in the honest ledger
//   receipt  verifies only for the leaf and place that was signed
//   events   read throws kInvalidInput; written again they read alike
//   key      read throws kMalformed
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/honest_ledger.h"

using namespace discreet;
using namespace discreet::ledger;

namespace {

enum Parser : std::uint8_t { kEntry, kNote, kProof, kBundle, kReceipt, kEvents, kKey, kParsers };

const fuzz::HonestLedger& honest() {
  static const fuzz::HonestLedger ledger;
  return ledger;
}

bool is_honest(const Checkpoint& checkpoint) {
  return checkpoint == read_unverified(honest().earlier) ||
         checkpoint == read_unverified(honest().note);
}

void note(std::string_view text) {
  fuzz::throws_only({ErrorCode::kMalformed}, [&] {
    const Checkpoint read = read_unverified(text);
    const auto opened = open_note(text, {read.origin, honest().key()});
    fuzz::require(!opened || is_honest(*opened), "a note was forged");
  });
}

void proof(std::string_view text) {
  fuzz::throws_only({ErrorCode::kInvalidInput}, [&] {
    const ProofVerdict found = verify_proof(text, honest().key(), honest().earlier);
    if (!found.ok) return;
    fuzz::require(found.size == honest().leaves.size(), "a proof is of another tree");
    fuzz::require(found.from_size || *found.entry < found.size, "a proof is of no entry");
    fuzz::require(!found.leaf || *found.leaf == honest().leaves.at(*found.entry),
                  "a proof is of an entry that is not there");
  });
}

void bundle(std::string_view text) {
  const BundleVerdict found = verify_bundle(text, honest().key());
  if (!found.ok) return;
  fuzz::require(found.descriptor == to_hex(honest().withdrawn()), "another one was withdrawn");
  // Presence is proven, completeness is not: a bundle may leave uses and releases out.
  const BundleVerdict whole = verify_bundle(honest().bundle, honest().key());
  fuzz::require(found.origin == whole.origin && found.uses <= whole.uses &&
                    found.releases <= whole.releases && found.spend <= whole.spend,
                "a bundle tells of what is not there");
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  std::vector<Bytes> out;
  for (const Bytes& leaf : honest().leaves) out.push_back(seed(kEntry, leaf));
  for (const auto* text : {&honest().note, &honest().earlier}) out.push_back(seed(kNote, *text));
  for (const auto* text : {&honest().entry_proof, &honest().consistency_proof})
    out.push_back(seed(kProof, *text));
  out.push_back(seed(kProof, "{\"entry\":1,\"leaf\":\"" + to_hex(honest().leaves[1]) +
                                 "\",\"receipt\":\"" + to_hex(honest().receipts[1]) + "\"}"));
  out.push_back(seed(kBundle, honest().bundle));
  out.push_back(seed(kReceipt, honest().receipts[1]));
  out.push_back(seed(kEvents, write_deletion_event(ledger::testing::withdrawal(
                                  honest().withdrawn(), ledger::testing::contributor_key()))));
  const NoteKey key{"test.example/corpus", honest().key()};
  out.push_back(seed(kKey, key.to_text()));
  out.push_back(seed(kKey, honest().key().to_pem()));
  out.push_back(seed(kKey, to_hex(honest().key().bytes())));
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteView bytes(data + 1, size - 1);
  const std::string_view text = fuzz::text_of(bytes);
  switch (data[0] % kParsers) {
    case kEntry:
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        const Entry entry = decode_entry(bytes);
        fuzz::require(std::ranges::equal(encode(entry), bytes), "an entry has two encodings");
        describe(entry);
      });
      break;
    case kNote: note(text); break;
    case kProof: proof(text); break;
    case kBundle: bundle(text); break;
    case kReceipt: {
      Place place;
      if (verify_inclusion_receipt(bytes, honest().leaves[1], honest().key(), &place))
        fuzz::require(place.index == 1 && place.size == honest().leaves.size() &&
                          place.root == read_unverified(honest().note).root,
                      "a receipt was forged");
      fuzz::require(!verify_inclusion_receipt(bytes, honest().leaves[2], honest().key()),
                    "a receipt is of another leaf");
      break;
    }
    case kEvents:
      fuzz::throws_only({ErrorCode::kInvalidInput}, [&] {
        std::string written;
        for (const Withdrawal& w : read_deletion_events(text)) written += write_deletion_event(w);
        std::string again;
        for (const Withdrawal& w : read_deletion_events(written)) again += write_deletion_event(w);
        fuzz::require(again == written, "events do not read back");
      });
      break;
    default:
      fuzz::throws_only({ErrorCode::kMalformed}, [&] { ledger_key_from_text(text); });
      fuzz::throws_only({ErrorCode::kMalformed}, [&] { NoteKey::from_text(text); });
  }
  return 0;
}
