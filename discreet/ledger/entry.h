#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"
#include "discreet/base/hash.h"

// The content of a ledger's leaves. FORMAT.md beside this file defines the bytes and the numbered
// rules between leaves; state.h checks the rules.
//
// Every value is declared, scheduled or derived from such values. No value depends on a payload, on
// the records that took part in a step, or on a clock, except for the named public dates. Numbers
// are integers in the units below, so that they have one encoding; each comment states the rounding
// direction.
namespace discreet::ledger {

inline constexpr double kMicro = 1e6;  // epsilons: millionths
inline constexpr double kNano = 1e9;  // clips, deviations, multipliers: 10^-9, as admission::Scaled
inline constexpr double kPico = 1e12;  // rates: 10^-12
inline constexpr double kAtto = 1e18;  // delta: 10^-18

// Since schema 2, terms name the steps that their run plans, and spends cover the plan. Ledgers of
// schema 1 can still be read and extended, without plans.
inline constexpr std::uint64_t kSchemaVersion = 2;
inline constexpr std::size_t kMostLeafBytes = std::size_t{1} << 20;
// The largest count of steps, records or refusals, and the largest deviation and grid step in their
// unit (9,007,199): policies, descriptors and configurations allow no larger number.
inline constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 53;

using RawKey = std::array<std::uint8_t, 32>;  // the bytes of an Ed25519 public key

// Leaf 0: the contract by which all other leaves are verified. It never changes; another contract
// needs another ledger.
struct Header {
  std::uint64_t schema = kSchemaVersion;  // schema of the entries
  std::string origin;                     // the name under which checkpoints are signed (note.h)
  std::string accountant;                 // "pld", "rdp", "moments": the accountant of the spends
  std::uint64_t delta = 0;                // 10^-18, in (0, 10^18): delta of every recorded epsilon
  accounting::Adjacency adjacency = accounting::Adjacency::kZeroOut;
  std::uint64_t clip_floor = 0;        // 10^-9: corpus-level floors
  std::uint64_t multiplier_floor = 0;  // 10^-9
  std::uint64_t depth_profile_schema = 1;
  std::uint64_t descriptor_schema = 1;
  std::uint64_t retention = 0;   // seconds from the end of a descriptor until it is summarised
  Digest policy{};               // SHA-256 of the policy, which is leaf 1
  RawKey key{};                  // signs the checkpoints
  std::vector<RawKey> stewards;  // may withdraw any contribution; ascending
};

// Leaf 1.
struct Policy {
  Bytes text;
};

// How to read a descriptor's bound.
enum class Promise : std::uint8_t {
  kWorstCase = 0,  // (C, z, k): every use has noise of at least sqrt(k)·z·C
  kAmplified = 1,  // (C, epsilon): the spend at the header's delta stays at most epsilon
};

// A contribution that passed the gate. All fields follow from its signed descriptor, except for the
// multiplier of an amplified promise: the operator states it, and every use is clipped so that its
// noise multiplier is at least that.
struct Admission {
  std::uint64_t number = 0;         // admissions are numbered from 0
  Digest descriptor{};              // SHA-256 of the canonical descriptor, including the nonce
  std::optional<Digest> signature;  // SHA-256 of the attestation; never empty (rule 4)
  std::string admissibility_class;  // 1 to 128 bytes
  RawKey contributor{};             // the key that attested it
  std::uint64_t clip = 0;           // C, 10^-9, rounded up, > 0
  Promise promise = Promise::kWorstCase;
  // 10^-9, rounded down: z (worst case); the smallest noise multiplier of a use, or 0 (amplified)
  std::uint64_t multiplier = 0;
  std::uint64_t uses = 0;       // k (worst case)
  std::uint64_t epsilon = 0;    // millionths, rounded down (amplified)
  std::uint64_t not_after = 0;  // seconds since 1970: the scheduled end, exclusive
  std::string adapter;          // the adapter it may reach instead of a depth band; empty: none
};

enum class Family : std::uint8_t {
  kGaussian = 0,
  kRoundedGaussian = 1,
  kLaplace = 2,
  kDiscreteGaussian = 3,
  kSkellam = 4,
};

// What an epoch of a run does to every contribution of a class; reserved before the first step of
// the epoch.
struct Terms {
  std::string run;  // 1 to 128 bytes, public
  std::uint64_t epoch = 0;
  std::uint64_t as_of = 0;  // seconds since 1970: contributions that ended before are excluded
  std::string admissibility_class;
  Bytes profile;  // canonical CBOR: depth bands, layers and heads, or an adapter
  Family family = Family::kGaussian;
  std::uint64_t deviation = 0;  // noise on a coordinate, 10^-9, rounded down, 1 to 2^53
  std::uint64_t grid = 0;       // discrete Gaussian and Skellam: grid step, 10^-9, to 2^53; else 0
  accounting::Adjacency adjacency = accounting::Adjacency::kZeroOut;
  // 0 none, 1 Poisson, 2 truncated Poisson, 3 fixed size, 4 balls and bins, 5 shuffled epoch: the
  // order of accounting::Sampling.
  std::uint8_t sampler = 0;
  std::uint64_t rate = 0;        // 10^-12, rounded up; samplers 1 and 2
  std::uint64_t batch = 0;       // samplers 2 and 3; batches of samplers 4 and 5; at most 2^53
  std::uint64_t population = 0;  // samplers 2 and 3; at most 2^53
  std::uint64_t steps = 0;       // 1 to 2^53
  // The steps of all epochs of the run for this class: fixed before the first epoch, and at least
  // the sum over its epochs; at most 2^53. 0 in ledgers of schema 1, whose terms do not contain it.
  std::uint64_t planned_steps = 0;
};

// One contribution in one epoch.
struct Use {
  std::uint64_t terms = 0;         // position of the leaf with the terms
  std::uint64_t contribution = 0;  // number of the admission
  // Cumulative epsilon, millionths, rounded up: of all steps that its runs have planned; in ledgers
  // of schema 1, of the epochs so far (spend.md).
  std::uint64_t spend = 0;
};

struct EpochEnd {
  std::string run;
  std::uint64_t epoch = 0;
  std::uint64_t uses = 0;
};

// The number of contributions that the gate rejected since the last such leaf, per reason;
// ascending. Never USES_EXHAUSTED, which would reveal participation.
struct Refusals {
  std::vector<std::pair<std::string, std::uint64_t>> counts;
};

// From here on, no epoch uses the contribution. A withdrawal erases nothing and makes no claim
// about models that are already trained.
struct Withdrawal {
  Digest descriptor{};
  std::string reason;      // at most 256 bytes
  std::uint64_t time = 0;  // seconds since 1970, as signed
  RawKey key{};            // key of the contributor or of a steward
  Bytes signature;         // COSE_Sign1, detached, over withdrawal_statement()
};

struct ClassTotal {
  std::string admissibility_class;
  std::uint64_t contributions = 0;
  std::uint64_t uses = 0;
  std::uint64_t most_spent = 0;  // the largest cumulative epsilon, millionths
  friend bool operator==(const ClassTotal&, const ClassTotal&) = default;
};

// Replaces the contents of leaves whose contributions ended before `horizon`; their hashes remain.
// Counts and digest cover all leaves summarised so far, including earlier summaries.
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

// The first leaf of every batch except the first: commits to the note signed before it.
struct Signed {
  Digest note{};  // SHA-256 of the note of the tree without this leaf
};

// The promise for the records of a deletion, in the terms of `unlearning`.
enum class DeletionPromise : std::uint8_t {
  kNotCertified = 0,
  kPerRecord = 1,
  kSetLevel = 2,
  kTranscript = 3,
  kExact = 4,  // bit-identical to the state without the records
};

// The receipt of one deletion request: records were removed from a model. Nothing here depends on a
// record: subject and records are in the salted commitment, everything else is configuration,
// schedule or count.
struct Deletion {
  std::string model;         // 1 to 128 bytes, public
  std::uint64_t number = 0;  // deletions of the model are numbered from 0
  std::uint64_t time = 0;    // seconds since 1970, when it was recorded
  Digest commitment{};       // SHA-256 of a secret salt, the subject and the records
  std::string engine;        // "exact", "erm", "stream"
  DeletionPromise promise = DeletionPromise::kNotCertified;
  std::uint64_t epsilon = 0;     // millionths, rounded up: configured total; 0 if exact
  std::uint64_t delta = 0;       // 10^-18, rounded up: configured; 0 if exact
  std::uint64_t residual = 0;    // 10^-18, rounded up: configured distance from the exact solution
  std::uint64_t generation = 0;  // number of retrainings so far, including this deletion
  std::optional<std::uint64_t> withdrawal;  // position of the withdrawal that requested it
};

using Entry = std::variant<Header, Policy, Admission, Terms, Use, EpochEnd, Refusals, Withdrawal,
                           Summary, Release, Signed, Deletion>;

// "header", "policy", "admission", "terms", "use", "epoch_end", "refusals", "withdrawal",
// "summary", "release", "signed", "deletion".
std::string_view name(const Entry& entry) noexcept;

// The bytes of a leaf: encode(decode(bytes)) == bytes. decode_entry throws kMalformed for any other
// bytes.
Bytes encode(const Entry& entry);
Entry decode_entry(ByteView bytes);
// encode(use) without allocation: writes at most 28 bytes to `out` and returns their number.
std::size_t encode_use(const Use& use, std::uint8_t* out) noexcept;

// For people: the fields by name, bytes in hexadecimal, numbers in their units.
cbor::Value describe(const Entry& entry);

// A descriptor's hash as text: 64 hexadecimal digits. Throws kInvalidInput for any other text.
Digest descriptor_hash(std::string_view text);

// The bytes that a withdrawal signs.
Bytes withdrawal_statement(std::string_view origin, const Digest& descriptor,
                           std::string_view reason, std::uint64_t time);

// The commitment of a deletion to a subject and the subject's records (FORMAT.md, rule 11).
Digest deletion_commitment(ByteView salt, std::string_view subject,
                           std::span<const std::uint64_t> records);

}  // namespace discreet::ledger
