#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/base/bytes.h"

namespace discreet::accounting {

// Proof: event.md

// The vocabulary of releases: mechanisms emit events; accountants and the ledger consume them. The
// meaning of a recorded event never changes; a new meaning needs a new type. An accountant rejects,
// by name, an event that it cannot handle.

// Which data sets are neighbours. Every event states its adjacency, and every epsilon carries it.
enum class Adjacency : std::uint8_t {
  kAddRemove,   // one record added or removed
  kZeroOut,     // one record's contribution replaced by zero
  kReplaceOne,  // one record replaced by another
};

// ---------------------------------------------------------------- mechanisms

// Every noise multiplier is the standard deviation of the noise on a coordinate divided by the L2
// sensitivity to adding or removing one record: dimensionless, finite, > 0.

// N(0, sigma^2) on each coordinate of a sum of vectors of norm at most 1.
struct Gaussian {
  double noise_multiplier;
  friend auto operator<=>(const Gaussian&, const Gaussian&) = default;
};

// A part of the parameters with its own clip bound and noise.
struct Group {
  double noise_multiplier;  // standard deviation / clip, > 0
  double clip;              // norm bound of a record's part, > 0, in the unit of flat_clip
  friend auto operator<=>(const Group&, const Group&) = default;
};

// Counts released together with the gradient on the same subsample, to adapt clip bounds: each is
// sum(1[.] - 1/2) + N(0, deviation^2). One record changes each count by at most 1/2.
struct Adaptation {
  std::uint32_t counts;  // m >= 1
  double deviation;      // sigma_b > 0
  friend auto operator<=>(const Adaptation&, const Adaptation&) = default;
};

// Gaussian noise on several groups of one subsample. Together they equal one Gaussian with
// multiplier effective_noise_multiplier(). Do not account the groups as separate steps: that
// underestimates the cost.
struct GaussianGroups {
  std::vector<Group> groups;        // at least one
  std::optional<double> flat_clip;  // bound of a record's norm over all groups, > 0
  std::optional<Adaptation> adaptation;
  friend auto operator<=>(const GaussianGroups&, const GaussianGroups&) = default;
};

// Laplace noise. scale: scale of the noise / L1 sensitivity; finite, > 0.
struct Laplace {
  double scale;
  friend auto operator<=>(const Laplace&, const Laplace&) = default;
};
// The scale of Laplace noise with this standard deviation, both in units of the clip bound. Rounded
// down: this is the value for the accountant.
double laplace_scale(double noise_multiplier) noexcept;

// The discrete Gaussian on a grid. It is not a Gaussian, and the PLD of a Gaussian is not valid for
// it.
struct DiscreteGaussian {
  double noise_multiplier;
  double sensitivity;  // in grid units, > 0
  friend auto operator<=>(const DiscreteGaussian&, const DiscreteGaussian&) = default;
};

// A Gaussian that is sampled exactly, rounded to the grid and added to records on the grid:
// post-processing of Gaussian{noise_multiplier}.
struct RoundedGaussian {
  double noise_multiplier;
  friend auto operator<=>(const RoundedGaussian&, const RoundedGaussian&) = default;
};

// Skellam noise (the difference of two Poissons) on integer vectors with bounded norms.
struct Skellam {
  double variance;      // per coordinate, > 0, in grid units squared
  double l1, l2, linf;  // sensitivities in grid units, > 0
  friend auto operator<=>(const Skellam&, const Skellam&) = default;
};

// A mechanism that is (epsilon, delta)-DP, with nothing else known about it.
struct Guarantee {
  double epsilon;  // >= 0
  double delta;    // in [0, 1)
  friend auto operator<=>(const Guarantee&, const Guarantee&) = default;
};

using Mechanism = std::variant<Gaussian, GaussianGroups, Laplace, DiscreteGaussian, RoundedGaussian,
                               Skellam, Guarantee>;

// ---------------------------------------------------------------- sampling

struct NoSampling {  // every record, in every step
  friend auto operator<=>(const NoSampling&, const NoSampling&) = default;
};
struct Poisson {  // each record independently
  double rate;    // in (0, 1]
  friend auto operator<=>(const Poisson&, const Poisson&) = default;
};
struct TruncatedPoisson {    // Poisson, cut to at most `batch` records
  double rate;               // in (0, 1]
  std::uint64_t batch;       // >= 1
  std::uint64_t population;  // declared, public, >= batch
  friend auto operator<=>(const TruncatedPoisson&, const TruncatedPoisson&) = default;
};
struct FixedSize {  // exactly `batch` of `population` records, without replacement
  std::uint64_t batch;
  std::uint64_t population;
  friend auto operator<=>(const FixedSize&, const FixedSize&) = default;
};
struct BallsAndBins {     // each record in one random batch of `batches`; the event is the epoch
  std::uint64_t batches;  // >= 1
  friend auto operator<=>(const BallsAndBins&, const BallsAndBins&) = default;
};
struct ShuffledEpoch {    // a permutation cut into `batches` batches; the event is the epoch
  std::uint64_t batches;  // >= 1
  friend auto operator<=>(const ShuffledEpoch&, const ShuffledEpoch&) = default;
};

using Sampling =
    std::variant<NoSampling, Poisson, TruncatedPoisson, FixedSize, BallsAndBins, ShuffledEpoch>;

// ---------------------------------------------------------------- the event

class Event {
 public:
  // Throws kInvalidDpConfig, naming the value, if a number is out of range or the three do not fit:
  // a guarantee with sampling, balls-and-bins or Poisson sampling under replace_one, shuffled
  // epochs under add_remove, fixed-size or truncated Poisson sampling under zero_out.
  Event(Mechanism mechanism, Sampling sampling, Adjacency adjacency);

  const Mechanism& mechanism() const noexcept { return mechanism_; }
  const Sampling& sampling() const noexcept { return sampling_; }
  Adjacency adjacency() const noexcept { return adjacency_; }

  friend bool operator==(const Event&, const Event&) = default;
  friend auto operator<=>(const Event&, const Event&) = default;

 private:
  Adjacency adjacency_;
  Sampling sampling_;
  Mechanism mechanism_;
};

// The fixed names used in messages, records and traces: "gaussian", "poisson", "add_remove" and so
// on.
std::string_view name(const Mechanism& mechanism) noexcept;
std::string_view name(const Sampling& sampling) noexcept;
std::string_view to_string(Adjacency adjacency) noexcept;
std::string describe(const Event& event);  // "poisson gaussian under add_remove"

// The multiplier of the single Gaussian that equals all groups together, rounded down (less noise):
//   sigma_eff^-2 = max sum u_g / (sigma_g C_g)^2  over  0 <= u_g <= C_g^2, sum u_g <= flat_clip^2
//                  (without flat_clip: sum sigma_g^-2)                        + m / (4 sigma_b^2).
// A single group without flat_clip and adaptation keeps its multiplier bit for bit.
double effective_noise_multiplier(const GaussianGroups& groups);

// The multiplier of the Gaussian that a mechanism equals or post-processes; empty if there is none.
std::optional<double> gaussian_noise_multiplier(const Mechanism& mechanism);

// batch / population, rounded up.
double rounded_up_rate(const FixedSize& sampling) noexcept;

// Deterministic CBOR: equal events have equal bytes. decode_event throws kMalformed for bytes that
// do not encode an event, kInvalidDpConfig for an event with a value out of range.
Bytes encode(const Event& event);
Event decode_event(ByteView bytes);

// An event and its number of occurrences, >= 1.
struct RepeatedEvent {
  Event event;
  std::uint64_t count;
};

// The dominating pairs that the certified accountants compose. Supported are
//   - Gaussian, GaussianGroups and RoundedGaussian with Poisson sampling under add_remove or
//     zero_out;
//   - the same with fixed-size batches under add_remove, as Poisson at half the noise
//     (fixed_size.md);
//   - the same without sampling; under replace_one at twice the sensitivity;
//   - Guarantee.
// Other events, and events of different adjacency, are rejected by name with kInvalidDpConfig. The
// result is canonical: equal multisets give equal Compositions. Throws kAccountantOverflow for a
// total count of 2^63 or more.
Composition reduce(const std::vector<RepeatedEvent>& events);

}  // namespace discreet::accounting
