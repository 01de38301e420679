#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/hash.h"
#include "discreet/ledger/entry.h"

// The statement about a released model: its files, its ledger, the layers that each class of
// contributions reached and under which bounds, the promises to the classes, and the permitted uses
// of the model. FORMAT.md beside this file defines the bytes; envelope.h signs them.
//
// Every value is declared, scheduled, derived from such values, or the digest of a release: nothing
// depends on a payload beyond the model itself. Numbers are integers in the units of the ledger
// (ledger/entry.h): epsilons 10^-6, clips, deviations and multipliers 10^-9, delta 10^-18, times in
// seconds since 1970.
namespace discreet::release {

// The class of records without a descriptor: the only class of a run without ledger. No descriptor
// can declare it.
inline constexpr std::string_view kUnattested = "(unattested)";
// The purpose that includes every purpose.
inline constexpr std::string_view kAnyPurpose = "any";

inline constexpr std::size_t kMostStatementBytes = std::size_t{1} << 24;

struct ModelFile {
  std::string name;  // file name without folder
  Digest sha256{};
  friend bool operator==(const ModelFile&, const ModelFile&) = default;
};

// The ledger at the time of drafting: the note contains origin, size and root.
struct LedgerView {
  ledger::RawKey key{};    // signs its notes
  std::string note;        // signed by this key
  std::string accountant;  // this and the next two as in its header: of every spend below
  std::uint64_t delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kZeroOut;
  friend bool operator==(const LedgerView&, const LedgerView&) = default;
};

// The contributions of one class to the run, and their bounds: over all of them, the least strict
// bound and the largest spend.
struct Posture {
  std::string admissibility_class;
  std::uint64_t contributions = 0;  // of the class in the run's epochs; 0 if unattested
  std::uint64_t withdrawn = 0;      // number of these that were withdrawn before the manifest
  std::uint64_t epochs = 0;      // planned by the run for the class; without plans, completed ones
  std::uint64_t clip = 0;        // largest C
  std::uint64_t multiplier = 0;  // smallest z, and largest k, of worst-case promises; 0 if none
  std::uint64_t uses = 0;
  std::uint64_t epsilon = 0;    // largest epsilon of amplified promises; 0 if none
  std::uint64_t deviation = 0;  // smallest standard deviation of the noise on a coordinate
  // The largest cumulative epsilon of one contribution over all runs of the ledger, rounded up; for
  // unattested records, that of the run.
  std::uint64_t spend = 0;
  friend bool operator==(const Posture&, const Posture&) = default;
};

// A layer, and the classes that were permitted to contribute to it directly. Influence through
// noised releases of other steps is post-processing and is not listed.
struct Layer {
  std::string name;
  std::vector<std::string> classes;  // ascending
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Adapter {
  std::string name;
  std::vector<std::string> classes;  // ascending
  std::vector<std::string> scope;    // generation classes that may use it; ascending
  friend bool operator==(const Adapter&, const Adapter&) = default;
};

// A kind of answer that the model may give, and the parameters it draws on. The person who releases
// the model declares the scope and is responsible for it by the signature. A forward pass reads
// every layer below the one at which it ends, so omit only layers that are not executed.
struct GenerationClass {
  std::string name;
  std::vector<std::string> layers;    // of the manifest; ascending
  std::vector<std::string> adapters;  // of the manifest, with this class in their scope; ascending
  std::vector<std::string> purposes;  // that it may serve; ascending; "any" for all
  // True if it may draw on layers of contributions that were withdrawn before the manifest.
  bool serves_withdrawn = false;
  friend bool operator==(const GenerationClass&, const GenerationClass&) = default;
};

// The promise for everything that the run released. Its epsilon is at least the spend of every
// posture.
struct PrivacyStatement {
  std::uint64_t epsilon = 0;  // upper end, rounded up
  std::uint64_t delta = 0;    // rounded up
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::vector<std::string> covers, not_covered;  // sentences, at least one each
  friend bool operator==(const PrivacyStatement&, const PrivacyStatement&) = default;
};

struct Manifest {
  // Names of the run in the ledger, ascending: one, or more if the run was resumed in a different
  // environment under another name. For a run without ledger, the name of its folder.
  std::vector<std::string> runs;
  std::vector<ModelFile> model;  // ascending by name, at least one
  std::uint64_t issued = 0;
  std::uint64_t max_age = 0;                // seconds, > 0: stale from issued + max_age on
  std::optional<LedgerView> ledger;         // empty: the run had no corpus
  std::vector<Posture> postures;            // ascending by class, at least one
  std::vector<Layer> layers;                // in stack order, at least one
  std::vector<Adapter> adapters;            // ascending
  std::vector<GenerationClass> generation;  // ascending, at least one
  PrivacyStatement privacy;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Throws kInvalidInput, naming the field, for an invalid manifest:
// - a text that is empty, longer than 256 bytes (sentences: 1,024 bytes), not UTF-8 or with control
//   characters;
// - a list that is unsorted or has duplicates, or an undefined name;
// - an adapter in a generation class outside its scope;
// - any posture but the unattested one without a ledger, or the unattested posture with a ledger;
// - a note that its key did not sign;
// - an epsilon below the spend of one of the postures.
void require_valid(const Manifest& manifest);

// The in-toto statement, one line of JSON; each manifest has exactly one text. encode throws as
// require_valid; decode_statement throws kMalformed for every other text.
std::string encode(const Manifest& manifest);
Manifest decode_statement(std::string_view text);

// For people: "clinical       3 contributions, 1 of them withdrawn, epsilon ≤ 0.161485".
std::string describe(const Posture& posture);

// The position of the manifest in its ledger: the number of entries of its note; 0 without ledger.
std::uint64_t position_of(const Manifest& manifest);

}  // namespace discreet::release
