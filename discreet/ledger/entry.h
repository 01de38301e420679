#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"
#include "discreet/base/hash.h"

// What a leaf of the ledger says. The bytes, and the numbered rules between leaves, are in
// FORMAT.md beside this file; state.h checks the rules.
//
// Every value here is declared, scheduled or derived from such: nothing depends on a payload, on
// who took part in a step, or on a clock beyond the public dates named. Numbers are integers in the
// units below, so that they have one encoding; each says in which direction it was rounded.
namespace discreet::ledger {

inline constexpr double kMicro = 1e6;  // epsilons: millionths
inline constexpr double kNano = 1e9;  // clips, deviations, multipliers: 10^-9, as admission::Scaled
inline constexpr double kPico = 1e12;  // rates: 10^-12
inline constexpr double kAtto = 1e18;  // delta: 10^-18

// 2: terms name the steps that their run plans, and spends are those of the plan. Ledgers of schema
// 1 are still read and extended, without plans.
inline constexpr std::uint64_t kSchemaVersion = 2;
inline constexpr std::size_t kMostLeafBytes = std::size_t{1} << 20;

using RawKey = std::array<std::uint8_t, 32>;  // the bytes of an Ed25519 public key

// Leaf 0: the contract under which everything else is verified. It never changes; another contract
// is another ledger.
struct Header {
  std::uint64_t schema = kSchemaVersion;  // of entries
  std::string origin;                     // the name under which checkpoints are signed (note.h)
  std::string accountant;                 // "pld", "rdp", "moments": what spends are derived by
  std::uint64_t delta = 0;                // 10^-18, in (0, 10^18): of every recorded epsilon
  accounting::Adjacency adjacency = accounting::Adjacency::kZeroOut;
  std::uint64_t clip_floor = 0;        // 10^-9: corpus-level floors
  std::uint64_t multiplier_floor = 0;  // 10^-9
  std::uint64_t depth_profile_schema = 1;
  std::uint64_t descriptor_schema = 1;
  std::uint64_t retention = 0;   // seconds after a descriptor's end before it is summarised
  Digest policy{};               // SHA-256 of the policy, which is leaf 1
  RawKey key{};                  // signs the checkpoints
  std::vector<RawKey> stewards;  // may withdraw any contribution; ascending
};

// Leaf 1.
struct Policy {
  Bytes text;
};

// How a descriptor's bound is to be read.
enum class Promise : std::uint8_t {
  kWorstCase = 0,  // (C, z, k): every use has noise of at least sqrt(k)·z·C
  kAmplified = 1,  // (C, epsilon): the spend at the header's delta stays at most epsilon
};

// A contribution that passed the gate. All of it comes from its signed descriptor, but for the
// multiplier of an amplified promise: there the operator says to which noise every use is cut.
struct Admission {
  std::uint64_t number = 0;         // counts admissions from 0
  Digest descriptor{};              // SHA-256 of the canonical descriptor, nonce included
  std::optional<Digest> signature;  // SHA-256 of the attestation, if the ledger keeps both
  std::string admissibility_class;  // 1 to 128 bytes
  RawKey contributor{};             // the key that attested it
  std::uint64_t clip = 0;           // C, 10^-9, rounded up, > 0
  Promise promise = Promise::kWorstCase;
  // 10^-9, rounded down: z (worst case); the least noise multiplier of a use, or 0 (amplified)
  std::uint64_t multiplier = 0;
  std::uint64_t uses = 0;       // k (worst case)
  std::uint64_t epsilon = 0;    // millionths, rounded down (amplified)
  std::uint64_t not_after = 0;  // seconds since 1970: the scheduled end, no longer inside
  std::string adapter;          // that it may touch in place of a depth band; empty: none
};

enum class Family : std::uint8_t {
  kGaussian = 0,
  kRoundedGaussian = 1,
  kLaplace = 2,
  kDiscreteGaussian = 3,
  kSkellam = 4,
};

// What an epoch of a run does to every contribution of a class: reserved before its first step.
struct Terms {
  std::string run;  // 1 to 128 bytes, public
  std::uint64_t epoch = 0;
  std::uint64_t as_of = 0;  // seconds since 1970: contributions that ended before are out
  std::string admissibility_class;
  Bytes profile;  // canonical CBOR: depth bands, layers and heads, or an adapter
  Family family = Family::kGaussian;
  std::uint64_t deviation = 0;  // of the noise on a coordinate, 10^-9, rounded down, > 0
  std::uint64_t grid = 0;       // discrete Gaussian and Skellam: step of the grid, 10^-9; else 0
  accounting::Adjacency adjacency = accounting::Adjacency::kZeroOut;
  // 0 none, 1 Poisson, 2 truncated Poisson, 3 fixed size, 4 balls and bins, 5 shuffled epoch: the
  // order of accounting::Sampling.
  std::uint8_t sampler = 0;
  std::uint64_t rate = 0;        // 10^-12, rounded up; samplers 1 and 2
  std::uint64_t batch = 0;       // samplers 2 and 3; batches of samplers 4 and 5
  std::uint64_t population = 0;  // samplers 2 and 3
  std::uint64_t steps = 0;       // >= 1
  // Of all epochs of the run, for this class: fixed before the first, and at least what its epochs
  // have together. 0 in ledgers of schema 1, whose terms do not have it.
  std::uint64_t planned_steps = 0;
};

// One contribution in one epoch.
struct Use {
  std::uint64_t terms = 0;         // position of the leaf with the terms
  std::uint64_t contribution = 0;  // number of the admission
  // Cumulative epsilon, millionths, rounded up: of all that its runs have planned; in ledgers of
  // schema 1 of the epochs so far (spend.md).
  std::uint64_t spend = 0;
};

struct EpochEnd {
  std::string run;
  std::uint64_t epoch = 0;
  std::uint64_t uses = 0;
};

// What the gate turned away since the last such leaf, per reason; ascending. Never USES_EXHAUSTED:
// that tells who took part.
struct Refusals {
  std::vector<std::pair<std::string, std::uint64_t>> counts;
};

// From here on nothing uses the contribution. Erases nothing, and claims nothing about models
// already trained.
struct Withdrawal {
  Digest descriptor{};
  std::string reason;      // at most 256 bytes
  std::uint64_t time = 0;  // seconds since 1970, as signed
  RawKey key{};            // of the contributor or of a steward
  Bytes signature;         // COSE_Sign1, detached, over withdrawal_statement()
};

struct ClassTotal {
  std::string admissibility_class;
  std::uint64_t contributions = 0;
  std::uint64_t uses = 0;
  std::uint64_t most_spent = 0;  // the largest cumulative epsilon, millionths
  friend bool operator==(const ClassTotal&, const ClassTotal&) = default;
};

// Replaces the contents of leaves whose contributions ended before `horizon`; their hashes stay.
// Counts and digest are of all leaves summarised so far, earlier summaries included.
struct Summary {
  std::uint64_t horizon = 0;  // seconds since 1970
  std::uint64_t leaves = 0;
  Digest digest{};  // SHA-256 over position (8 bytes, big-endian) ‖ leaf hash, ascending
  std::vector<ClassTotal> classes;  // ascending
};

// A model was released.
struct Release {
  std::string run;
  Digest manifest{};
};

// First leaf of every batch but the first: what was signed before it.
struct Signed {
  Digest note{};  // SHA-256 of the note of the tree without this leaf
};

// What the records of a deletion are promised, in the words of `unlearning`.
enum class DeletionPromise : std::uint8_t {
  kNotCertified = 0,
  kPerRecord = 1,
  kSetLevel = 2,
  kTranscript = 3,
  kExact = 4,  // the state is that of never having inserted, in every bit
};

// Records were taken out of a model: the receipt of one request. Nothing here depends on a record:
// who and which is in the salted commitment, the rest is configuration, schedule and count.
struct Deletion {
  std::string model;         // 1 to 128 bytes, public
  std::uint64_t number = 0;  // counts the deletions of the model from 0
  std::uint64_t time = 0;    // seconds since 1970, when it was recorded
  Digest commitment{};       // SHA-256 of a secret salt, the subject and the records
  std::string engine;        // "exact", "erm", "stream"
  DeletionPromise promise = DeletionPromise::kNotCertified;
  std::uint64_t epsilon = 0;     // millionths, rounded up: configured in all; 0 when exact
  std::uint64_t delta = 0;       // 10^-18, rounded up: configured; 0 when exact
  std::uint64_t residual = 0;    // 10^-18, rounded up: configured distance from the exact solution
  std::uint64_t generation = 0;  // how often the model was retrained, this deletion included
  std::optional<std::uint64_t> withdrawal;  // position of the withdrawal that asked for it
};

using Entry = std::variant<Header, Policy, Admission, Terms, Use, EpochEnd, Refusals, Withdrawal,
                           Summary, Release, Signed, Deletion>;

// "header", "policy", "admission", "terms", "use", "epoch_end", "refusals", "withdrawal",
// "summary", "release", "signed", "deletion".
std::string_view name(const Entry& entry) noexcept;

// The bytes of a leaf, and back: encode(decode(bytes)) == bytes. decode_entry throws kMalformed for
// any other bytes.
Bytes encode(const Entry& entry);
Entry decode_entry(ByteView bytes);
// encode(use), without allocation: at most 28 bytes are written to `out`, and their number
// returned.
std::size_t encode_use(const Use& use, std::uint8_t* out) noexcept;

// For people: the same fields by name, bytes in hexadecimal, numbers in their units.
cbor::Value describe(const Entry& entry);

// A descriptor's hash as people write it: 64 hexadecimal digits. Throws kInvalidInput for any other
// text.
Digest descriptor_hash(std::string_view text);

// What a withdrawal's signature is over.
Bytes withdrawal_statement(std::string_view origin, const Digest& descriptor,
                           std::string_view reason, std::uint64_t time);

}  // namespace discreet::ledger
