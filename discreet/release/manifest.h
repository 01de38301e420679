#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/hash.h"
#include "discreet/ledger/entry.h"

// What a released model says of itself: which files it is, which ledger stands behind it, which
// classes of contributions touched which layer under which bounds, what is promised to them, and
// what it may be asked for. The bytes are in FORMAT.md beside this file; envelope.h signs them.
//
// Every value is declared, scheduled, derived from such, or the digest of what was released:
// nothing here depends on a payload beyond the model itself (soundness E1). Numbers are integers in
// the units of the ledger (ledger/entry.h): epsilons 10^-6, clips, deviations and multipliers
// 10^-9, delta 10^-18, times seconds since 1970.
namespace discreet::release {

// The class of records that came without descriptor: the only one of a run without ledger. No
// descriptor can declare it.
inline constexpr std::string_view kUnattested = "(unattested)";
// The purpose that stands for every purpose.
inline constexpr std::string_view kAnyPurpose = "any";

inline constexpr std::size_t kMostStatementBytes = std::size_t{1} << 24;

struct ModelFile {
  std::string name;  // of the file, without folder
  Digest sha256{};
  friend bool operator==(const ModelFile&, const ModelFile&) = default;
};

// The ledger as it was when the manifest was drafted: the note names origin, size and root.
struct LedgerView {
  ledger::RawKey key{};    // that signs its notes
  std::string note;        // signed by it
  std::string accountant;  // these three as in its header: of every spend below
  std::uint64_t delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kZeroOut;
  friend bool operator==(const LedgerView&, const LedgerView&) = default;
};

// What one class of contributions gave to the run, and under which bounds: of several contributions
// the least strict bound, the largest spend.
struct Posture {
  std::string admissibility_class;
  std::uint64_t contributions = 0;  // of the class that the run's epochs have; 0 if unattested
  std::uint64_t withdrawn = 0;      // how many of these were withdrawn before the manifest
  std::uint64_t epochs = 0;      // planned by the run for the class; without plans, those it took
  std::uint64_t clip = 0;        // largest C
  std::uint64_t multiplier = 0;  // least z, and largest k, of worst-case promises; 0 if none
  std::uint64_t uses = 0;
  std::uint64_t epsilon = 0;    // largest epsilon of amplified promises; 0 if none
  std::uint64_t deviation = 0;  // least standard deviation of the noise on a coordinate
  // The largest cumulative epsilon of one contribution, over all runs of the ledger, rounded up; of
  // unattested records that of the run.
  std::uint64_t spend = 0;
  friend bool operator==(const Posture&, const Posture&) = default;
};

// A layer, and the classes that were permitted to contribute to it directly. What reached it
// through noised releases of other steps is post-processing and not listed (soundness F5).
struct Layer {
  std::string name;
  std::vector<std::string> classes;  // ascending
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Adapter {
  std::string name;
  std::vector<std::string> classes;  // ascending
  std::vector<std::string> scope;    // generation classes that may be served with it; ascending
  friend bool operator==(const Adapter&, const Adapter&) = default;
};

// A kind of answer that the model may give, and the parameters it draws on. The scope is declared
// by whoever releases, who answers for it with the signature: a forward pass reads every layer
// below the one it ends at, so that leaving out layers is honest only where they are not executed.
struct GenerationClass {
  std::string name;
  std::vector<std::string> layers;    // of the manifest; ascending
  std::vector<std::string> adapters;  // of the manifest, with this class in their scope; ascending
  std::vector<std::string> purposes;  // that it may serve; ascending; "any" for all
  // Whether it may draw on layers of contributions that were withdrawn before the manifest.
  bool serves_withdrawn = false;
  friend bool operator==(const GenerationClass&, const GenerationClass&) = default;
};

// What is promised for all that the run released, and at least what every posture spent.
struct PrivacyStatement {
  std::uint64_t epsilon = 0;  // upper end, rounded up
  std::uint64_t delta = 0;    // rounded up
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::vector<std::string> covers, not_covered;  // sentences, at least one each
  friend bool operator==(const PrivacyStatement&, const PrivacyStatement&) = default;
};

struct Manifest {
  // Names of the run in the ledger, ascending: one, or more if it went on under another one on
  // another machine. Of a run without ledger, that of its folder.
  std::vector<std::string> runs;
  std::vector<ModelFile> model;  // ascending by name, at least one
  std::uint64_t issued = 0;
  std::uint64_t max_age = 0;                // seconds, > 0: it is stale from issued + max_age on
  std::optional<LedgerView> ledger;         // none: the run had no corpus
  std::vector<Posture> postures;            // ascending by class, at least one
  std::vector<Layer> layers;                // in the order of the stack, at least one
  std::vector<Adapter> adapters;            // ascending
  std::vector<GenerationClass> generation;  // ascending, at least one
  PrivacyStatement privacy;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Throws kInvalidInput, naming the field, for a manifest that cannot be: a text that is empty,
// longer than 256 bytes, not UTF-8 or with control characters (sentences: 1,024 bytes); lists out
// of order or with something twice; names that nothing bears; an adapter in a class that is not of
// its scope; without ledger other postures than the one unattested, with one that posture; a note
// that its key did not sign; a promise below what one of its postures spent.
void require_valid(const Manifest& manifest);

// The in-toto statement, one line of JSON: each manifest has one text. encode throws as
// require_valid; decode_statement throws kMalformed for every other text.
std::string encode(const Manifest& manifest);
Manifest decode_statement(std::string_view text);

// For people: "clinical       3 contributions, 1 of them withdrawn, epsilon ≤ 0.161485".
std::string describe(const Posture& posture);

// Where the manifest stands in its ledger: the number of entries of its note; 0 without ledger.
std::uint64_t position_of(const Manifest& manifest);

}  // namespace discreet::release
