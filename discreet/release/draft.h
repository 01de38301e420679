#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/admission/ed25519.h"
#include "discreet/layout/layout.h"
#include "discreet/release/manifest.h"

namespace discreet::release {

// The facts about a run from its directory. All of them are released or declared.
struct RunFacts {
  std::vector<std::string> runs;  // its names in the ledger, or that of its folder
  std::vector<ModelFile> model;   // the released files
  // The model's tensors, with public modules marked: determines the layers that a class may reach.
  ModelLayout layout = ModelLayout({});
  double epsilon = 0;  // the claim for everything that the run released, upper end
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::map<std::uint64_t, double> groups{};  // epsilon for this many records together, upper end
  // Stopped before its planned end, by a person or program that may have looked at it.
  bool interrupted = false;
  bool sealed = true;  // the run's seal of trace and model was verified
};

// The expected ledger of a run.
struct LedgerAt {
  std::filesystem::path path;
  admission::PublicKey key;  // of its signer
  std::string note;          // kept by the run: the ledger must extend it
};

// The decisions of the person who releases the model.
struct ReleaseTerms {
  std::uint64_t issued = 0;         // now, in seconds since 1970
  std::uint64_t max_age = 604'800;  // seconds: a week
  struct Scope {
    std::optional<std::vector<std::string>> layers;  // empty: all layers of the model
    std::vector<std::string> adapters;
    std::vector<std::string> purposes = {std::string(kAnyPurpose)};
    bool serves_withdrawn = false;
  };
  // By name. The scope of an adapter consists of the classes that name it.
  std::map<std::string, Scope> generation = {{"predict", Scope{}}};
};

// From JSON, e.g.
//   {"predict": {"purposes": ["research"], "layers": ["layer0"], "adapters": [],
//                "serves_withdrawn": false}}
// every member optional. Throws kInvalidInput for any other text.
std::map<std::string, ReleaseTerms::Scope> parse_scopes(std::string_view json);

// The manifest of a run, not yet signed or recorded. The ledger is read and verified completely, in
// one snapshot (except attestations). Without a ledger the run had no corpus, and the records are
// unattested. With a ledger, the manifest's epsilon is the larger of the run's epsilon and the
// largest spend of its classes, at the larger delta. It holds for the run, and for every
// contribution over all runs.
//
// Throws kMalformed, with the entry, for a ledger that does not verify, is signed by another key or
// does not extend the note. Throws kInvalidInput if the ledger has no epoch of the run, if the
// contributions of the run are already summarised, if the run was interrupted and the ledger has no
// plans (the spend of its epochs until a chosen time is not a bound), if a name in the terms is not
// one of the model, or as require_valid. Throws kInvalidDpConfig if a depth profile does not fit
// the layout.
Manifest draft(const RunFacts& facts, const ReleaseTerms& terms,
               const std::optional<LedgerAt>& ledger);

// The run that kept a note: the run of the epoch end or release that is the last entry of the note.
// Empty if the last entry is of another type.
std::optional<std::string> run_of_note(const std::filesystem::path& ledger, std::string_view note);

}  // namespace discreet::release
