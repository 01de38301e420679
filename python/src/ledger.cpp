#include "discreet/ledger/ledger.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "discreet/base/error.h"
#include "discreet/base/json.h"
#include "discreet/base/text/printable.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/proof.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/verify.h"
#include "discreet/ledger/withdrawal.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"

namespace discreet::python {

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet::ledger;

namespace {

using Path = std::filesystem::path;
using Text = std::optional<std::string>;

std::optional<LedgerKey> key_of(const Text& text) {
  if (!text) return std::nullopt;
  return ledger_key_from_text(*text);
}

admission::SigningKey signer_of(const std::string& pem, const Text& passphrase) {
  return admission::SigningKey::from_pem(pem, passphrase.value_or(""));
}

ByteView view_of(const nb::bytes& bytes) {
  return {static_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

double epsilon(std::uint64_t micro) { return static_cast<double>(micro) / kMicro; }

std::string json_of(const Entry& entry) { return to_json(describe(entry)); }

nb::dict total_of(const ClassTotal& total) {
  nb::dict out;
  out["class"] = total.admissibility_class;
  out["contributions"] = total.contributions;
  out["uses"] = total.uses;
  out["most_spent"] = epsilon(total.most_spent);
  return out;
}

nb::list totals_of(const std::vector<ClassTotal>& classes) {
  nb::list out;
  for (const ClassTotal& total : classes) out.append(total_of(total));
  return out;
}

nb::dict counts_of(const State::Counts& counts) {
  nb::dict out;
  out["admissions"] = counts.admissions;
  out["uses"] = counts.uses;
  out["epochs"] = counts.epochs;
  out["withdrawals"] = counts.withdrawals;
  out["refusals"] = counts.refusals;
  out["releases"] = counts.releases;
  out["deletions"] = counts.deletions;
  out["checkpoints"] = counts.notes;
  out["summarised"] = counts.summarised;
  return out;
}

// position, JSON of what the leaf says (none once summarised), leaf hash.
using Row = std::tuple<std::uint64_t, Text, std::string>;

std::vector<Row> rows(const Path& path, std::uint64_t begin, std::uint64_t count) {
  Store store(path, Store::Mode::kRead);
  Store::Leaves leaves(store, begin);
  std::vector<Row> out;
  for (Store::Leaf leaf; out.size() < count && leaves.next(leaf);)
    out.emplace_back(leaf.position,
                     leaf.summarised ? Text() : Text(json_of(decode_entry(leaf.content))),
                     to_hex(leaf.summarised ? leaf.hash : leaf_hash(leaf.content)));
  return out;
}

nb::dict traced(const Path& path, const std::string& descriptor) {
  const Digest hash = descriptor_hash(descriptor);
  const Trace found = [&] {
    const Unlocked others_may_run;
    Store store(path, Store::Mode::kRead);
    store.begin_snapshot();
    // In the same snapshot: what is shown is what was verified.
    if (const Verification verified = verify(store); !verified.ok)
      malformed("Ledger.trace", "the ledger does not verify ({}{}): {}; show it to its steward",
                verified.kind, verified.entry ? fmt::format(", entry {}", *verified.entry) : "",
                verified.problem);
    return trace(store, hash);
  }();
  nb::dict out;
  const auto at = [](const auto& item) {
    return nb::make_tuple(item->position, json_of(item->entry));
  };
  out["admission"] = found.admission ? nb::object(at(found.admission)) : nb::none();
  out["withdrawal"] = found.withdrawal ? nb::object(at(found.withdrawal)) : nb::none();
  nb::list uses, releases;
  for (const Trace::UseOf& use : found.uses) {
    nb::dict item;
    item["entry"] = use.position;
    item["run"] = use.terms.run;
    item["epoch"] = use.terms.epoch;
    item["cumulative_epsilon"] = epsilon(use.use.spend);
    uses.append(item);
  }
  for (const auto& release : found.releases) {
    nb::dict item;
    item["entry"] = release.position;
    item["run"] = release.entry.run;
    item["manifest_hash"] = to_hex(release.entry.manifest);
    releases.append(item);
  }
  out["uses"] = uses;
  out["releases"] = releases;
  out["epsilon"] = epsilon(found.spend);
  return out;
}

}  // namespace

void add_ledger(nb::module_& m) {
  nb::class_<Verification>(m, "LedgerVerification",
                           "The result of `verify`; true if the ledger verifies.")
      .def("__bool__", [](const Verification& v) { return v.ok; })
      .def_ro("ok", &Verification::ok)
      .def_ro("kind", &Verification::kind,
              "If not ok: file, entry, tree, signature, unsigned, rollback or fork.")
      .def_prop_ro("problem", [](const Verification& v) { return printable(v.problem); })
      .def_ro("entry", &Verification::entry, "The first wrong entry, if known.")
      .def_ro("size", &Verification::size, "Entries read.")
      .def_ro("note", &Verification::note, "The last verified checkpoint.")
      .def_ro("attestations", &Verification::attestations,
              "Number of verified signatures of contributors.")
      .def_prop_ro("root", [](const Verification& v) { return to_hex(v.root); })
      .def_prop_ro("counts", [](const Verification& v) { return counts_of(v.counts); })
      .def_prop_ro("classes", [](const Verification& v) { return totals_of(v.classes); })
      .def_prop_ro(
          "summarised", [](const Verification& v) { return totals_of(v.summarised); },
          "Totals from the last summary; they can no longer be recomputed.")
      .def_prop_ro("header_json", [](const Verification& v) {
        return v.header ? Text(json_of(*v.header)) : Text();
      });

  nb::class_<ProofVerdict>(m, "ProofVerdict", "The result of `verify_proof`; true if it holds.")
      .def("__bool__", [](const ProofVerdict& v) { return v.ok; })
      .def_ro("ok", &ProofVerdict::ok)
      .def_prop_ro("problem", [](const ProofVerdict& v) { return printable(v.problem); })
      .def_ro("origin", &ProofVerdict::origin)
      .def_ro("size", &ProofVerdict::size)
      .def_ro("entry", &ProofVerdict::entry)
      .def_ro("from_size", &ProofVerdict::from_size);

  nb::class_<BundleVerdict>(m, "BundleVerdict", "The result of `verify_bundle`; true if it holds.")
      .def("__bool__", [](const BundleVerdict& v) { return v.ok; })
      .def_ro("ok", &BundleVerdict::ok)
      .def_prop_ro("problem", [](const BundleVerdict& v) { return printable(v.problem); })
      .def_ro("origin", &BundleVerdict::origin)
      .def_ro("descriptor", &BundleVerdict::descriptor)
      .def_ro("uses", &BundleVerdict::uses)
      .def_ro("releases", &BundleVerdict::releases)
      .def_prop_ro("epsilon", [](const BundleVerdict& v) { return epsilon(v.spend); });

  m.def(
      "ledger_verify",
      [](const Path& path, const Text& public_key, const Text& checkpoint, bool attestations) {
        VerifyOptions how;
        how.key = key_of(public_key);
        how.checkpoint = checkpoint;
        how.attestations = attestations;
        const Unlocked others_may_run;
        return verify(path, how);
      },
      "path"_a, "public_key"_a, "checkpoint"_a, "attestations"_a);
  m.def("ledger_rows", &rows, "path"_a, "begin"_a, "count"_a);
  m.def(
      "ledger_leaf",
      [](const Path& path, std::uint64_t position) {
        Store store(path, Store::Mode::kRead);
        const Bytes leaf = leaf_at(store, position);
        return nb::bytes(leaf.data(), leaf.size());
      },
      "path"_a, "position"_a);
  m.def(
      "ledger_note",
      [](const Path& path) {
        Store store(path, Store::Mode::kRead);
        const auto note = store.last_note();
        if (!note) invalid_input("ledger", "the ledger was never signed");
        return std::pair(note->size, note->text);
      },
      "path"_a);
  m.def("ledger_trace", &traced, "path"_a, "descriptor"_a);
  m.def("ledger_prove_entry", &prove_entry, "path"_a, "entry"_a, nb::call_guard<Unlocked>());
  m.def("ledger_prove_consistency", &prove_consistency, "path"_a, "from_size"_a,
        nb::call_guard<Unlocked>());
  m.def(
      "ledger_verify_proof",
      [](const std::string& proof, const std::string& public_key, const Text& checkpoint) {
        return verify_proof(proof, ledger_key_from_text(public_key), checkpoint);
      },
      "proof"_a, "public_key"_a, "checkpoint"_a);
  m.def(
      "ledger_verify_receipt",
      [](const nb::bytes& receipt, const nb::bytes& leaf,
         const std::string& public_key) -> std::optional<std::pair<std::uint64_t, std::uint64_t>> {
        Place place;
        const LedgerKey key = ledger_key_from_text(public_key);
        if (!verify_inclusion_receipt(view_of(receipt), view_of(leaf), key.key, &place) ||
            (!place.origin.empty() && !key.is_of(place.origin)))
          return std::nullopt;
        return std::pair(place.index, place.size);
      },
      "receipt"_a, "leaf"_a, "public_key"_a);
  m.def(
      "ledger_sign_withdrawal",
      [](const std::string& descriptor, const std::string& origin, const std::string& key,
         const std::string& reason, std::uint64_t time, const Text& passphrase) {
        return write_deletion_event(sign_withdrawal(signer_of(key, passphrase), origin,
                                                    descriptor_hash(descriptor), reason, time));
      },
      "descriptor"_a, "origin"_a, "key"_a, "reason"_a, "time"_a, "passphrase"_a);
  m.def(
      "ledger_withdraw",
      [](const Path& path, const std::string& events, const std::string& key,
         const Text& passphrase, const Text& checkpoint) {
        const auto withdrawals = read_deletion_events(events);
        admission::SigningKey signer = signer_of(key, passphrase);
        const Unlocked others_may_run;
        Ledger ledger = Ledger::open(path, std::move(signer), checkpoint);
        const std::size_t recorded = ledger.withdraw(withdrawals);
        return std::pair(recorded, ledger.note());
      },
      "path"_a, "events"_a, "key"_a, "passphrase"_a, "checkpoint"_a);
  m.def(
      "ledger_bundle",
      [](const Path& path, const std::string& descriptor, const std::string& key,
         const Text& passphrase) {
        return withdrawal_bundle(path, signer_of(key, passphrase), descriptor_hash(descriptor));
      },
      "path"_a, "descriptor"_a, "key"_a, "passphrase"_a);
  m.def(
      "ledger_verify_bundle",
      [](const std::string& bundle, const Text& public_key) {
        return verify_bundle(bundle, key_of(public_key));
      },
      "bundle"_a, "public_key"_a);
}

}  // namespace discreet::python
