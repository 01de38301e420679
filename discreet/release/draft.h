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

// What a run directory says of its run: released or declared, nothing else.
struct RunFacts {
  std::vector<std::string> runs;  // its names in the ledger, or that of its folder
  std::vector<ModelFile> model;   // what is released
  // The model's tensors, with public modules marked: which layers a class was permitted.
  ModelLayout layout = ModelLayout({});
  double epsilon = 0;  // the claim for all that the run released, upper end
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::map<std::uint64_t, double> groups{};  // epsilon for so many records together, upper end
  // Stopped before its planned end, by a person or a program that may have looked at it.
  bool interrupted = false;
  bool sealed = true;  // the run's own seal of trace and model was verified
};

// What the ledger behind a run must be.
struct LedgerAt {
  std::filesystem::path path;
  admission::PublicKey key;  // that signed it
  std::string note;          // that the run kept: the ledger must extend it
};

// What whoever releases decides.
struct ReleaseTerms {
  std::uint64_t issued = 0;         // now, seconds since 1970
  std::uint64_t max_age = 604'800;  // seconds: a week
  struct Scope {
    std::optional<std::vector<std::string>> layers;  // none: all of the model
    std::vector<std::string> adapters;
    std::vector<std::string> purposes = {std::string(kAnyPurpose)};
    bool serves_withdrawn = false;
  };
  // By name. The scope of an adapter is the classes that name it.
  std::map<std::string, Scope> generation = {{"predict", Scope{}}};
};

// From JSON, e.g.
//   {"predict": {"purposes": ["research"], "layers": ["layer0"], "adapters": [],
//                "serves_withdrawn": false}}
// every member optional. Throws kInvalidInput for any other text.
std::map<std::string, ReleaseTerms::Scope> parse_scopes(std::string_view json);

// The manifest of a run, not yet signed or recorded. The ledger is read and verified whole, in one
// snapshot (attestations aside). Without one, the records are unattested: the run had no corpus.
// With one, the promise is the larger of that of the run and what its classes have spent, at the
// larger delta: it holds for the run, and for every contribution over all runs.
//
// Throws kMalformed, with the entry, for a ledger that does not verify, is signed by another key or
// does not extend the note; kInvalidInput if it has no epoch of the run, if the contributions of
// the run were summarised already, if the run was interrupted and the ledger has no plans (what its
// epochs spent until a time that somebody chose is no bound), if a name in the terms is not one of
// the model, or as require_valid; kInvalidDpConfig if a depth profile does not fit
// the layout.
Manifest draft(const RunFacts& facts, const ReleaseTerms& terms,
               const std::optional<LedgerAt>& ledger);

// The run that a note was kept by: its last entry is the end of an epoch, or a release, of it. None
// if it is something else.
std::optional<std::string> run_of_note(const std::filesystem::path& ledger, std::string_view note);

}  // namespace discreet::release
