#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"

namespace discreet {

// The keys of `security.differential_privacy`: those of the specification (I.B) and additions. The
// comment of each enumerator gives its spelling in configuration files. config_table.h lists all
// keys with ranges and descriptions.

enum class AccountantKind : std::uint8_t { kPld, kMoments, kRdp, kFdp, kGdp };
// pld, moments, rdp, f_dp, gdp
enum class Subsampling : std::uint8_t { kPoisson, kShuffleWithoutReplacement, kNone };
// POISSON, SHUFFLE_WITHOUT_REPLACEMENT, NONE
enum class SamplingMode : std::uint8_t {
  kPoisson,           // POISSON_V1
  kTruncatedPoisson,  // TRUNCATED_POISSON_V1
  kFixedSize,         // SHUFFLE_WITHOUT_REPLACEMENT_FIXED_SIZE_V1
  kBallsAndBins,      // SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1
  kShuffledEpoch,     // SHUFFLE_WITHOUT_REPLACEMENT_EPOCH_V1
  kSequential,        // SEQUENTIAL_V1
};
enum class Granularity : std::uint8_t { kPerStep, kPerEpoch };  // PER_STEP, PER_EPOCH
enum class ClipStrategy : std::uint8_t {
  kPerSample,     // per_sample: one bound over all private parameters
  kGhost,         // ghost: the same bound, computed from activations and output gradients
  kPerLayer,      // per_layer
  kPerGroup,      // per_group
  kPerTensor,     // per_tensor
  kHybrid,        // hybrid: per group, within a flat bound
  kPeftTargeted,  // peft_targeted: flat over the trainable, private tensors
  kAdaptive,      // adaptive: flat, the bound follows the norms privately
};
enum class NoiseFamily : std::uint8_t {
  kGaussian,          // gaussian
  kDiscreteGaussian,  // discrete_gaussian
  kRoundedGaussian,   // rounded_gaussian
  kSkellam,           // skellam
  kLaplace,           // laplace
};
// The discrete families: noise in whole steps of noise.discrete.
constexpr bool has_grid(NoiseFamily family) noexcept {
  return family != NoiseFamily::kGaussian && family != NoiseFamily::kLaplace;
}
enum class Compression : std::uint8_t { kNone, kTopkDp, kSparseDp };  // none, topk_dp, sparse_dp
enum class ScheduleMode : std::uint8_t {
  kFixed,              // fixed
  kBudgetAdaptive,     // budget_adaptive
  kMeetExactly,        // meet_exactly_at_target_steps
  kStepDecay,          // step_decay
  kDynamicProjection,  // dynamic_projection
};
enum class AdaptiveAccounting : std::uint8_t { kConservative, kHeuristic };
// conservative, heuristic
enum class AllocationMode : std::uint8_t { kUniform, kLayerWise, kCustom };
// uniform, layer_wise, custom
enum class ParallelismType : std::uint8_t { kDpOnly, k3d, kFsdp2, kZero3, kMoe };
// dp_only, 3d, fsdp2, zero3, moe
enum class TrainingPhase : std::uint8_t { kWarmup, kMain, kCooldown };  // warmup, main, cooldown
enum class NonfinitePolicy : std::uint8_t { kAbort, kZero };            // abort, zero
enum class MetricsRelease : std::uint8_t { kNone, kDp };                // none, dp
// The action if the projected epsilon exceeds the target (step 11; a heuristic, never a bound):
// advise only reports it, upscale raises sigma in advance, abort ends the run.
enum class ProjectionPolicy : std::uint8_t { kAdvise, kUpscale, kAbort };  // advise, upscale, abort
enum class ComputeDtype : std::uint8_t {
  kFloat32,
  kFloat64,
  kBfloat16
};  // float32, float64, bfloat16

using NumberMap = std::map<std::string, double>;  // by tensor, layer or group name

// Settings of one module ("a.b": the tensor "a.b" and all below it) or of one group of the layout.
// resolve() moves them into clip_norm_map, per_layer_multiplier and public_modules or
// public_groups, where they replace an entry of the same name.
struct Override {
  std::optional<double> clip_norm;
  std::optional<double> sigma_multiplier;  // factor on sigma
  std::optional<bool> is_public;           // `public`
  friend bool operator==(const Override&, const Override&) = default;
};
using OverrideMap = std::map<std::string, Override>;

// A phase of the schedule: warmup covers the steps before its until_step, main those up to its own
// until_step, cooldown the rest. `steps` gives the length instead of the end; resolve() converts it
// to until_step (for cooldown: to the end of main, which needs target_steps). Boundaries are public
// and fixed in advance.
struct PhaseOverride {
  std::optional<std::uint64_t> until_step;
  std::optional<std::uint64_t> steps;
  std::optional<double> noise_multiplier;  // replaces the configuration's during the phase
  std::optional<double> clip_norm;
  friend bool operator==(const PhaseOverride&, const PhaseOverride&) = default;
};

// The position within an optimizer step: microbatch current_step of gradient_accumulation_steps,
// 0-based; is_final for the last one. A position, not a setting: it is not part of the hash of a
// configuration.
struct AccumulationContext {
  std::uint64_t current_step = 0;
  bool is_final = true;
  friend bool operator==(const AccumulationContext&, const AccumulationContext&) = default;
};

// One configuration of the mechanism. Members start with the defaults of the keys; some defaults
// depend on other keys of the file (config_read.h). prevalidate() checks the numbers, and resolve()
// merges the overrides.
struct DpConfig {
  // Switches
  bool enabled = true;
  bool regulated = false;
  bool debug = false;      // permits noise 0; marks the run not_private
  bool secure = true;      // false: Philox under the public seed; marks the run not_private
  std::uint64_t seed = 0;  // of public randomness; of all randomness if !secure

  // Sampling. Two of rate, batch and size determine the third.
  Subsampling subsampling = Subsampling::kPoisson;
  SamplingMode sampling_mode = SamplingMode::kPoisson;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::optional<std::uint64_t> declared_size;         // N0, public
  std::optional<double> sampling_rate;                // q in (0, 1]
  std::optional<std::uint64_t> effective_batch_size;  // B_eff >= 1, public: expected or fixed size
  std::optional<std::uint64_t> truncated_batch;       // maximum size of a truncated Poisson batch

  // Accounting and budget
  AccountantKind accountant = AccountantKind::kPld;
  Granularity accountant_granularity = Granularity::kPerStep;
  bool log_space_accounting = false;
  double target_epsilon = 0;  // required in a file if enabled; 0 admits no step
  double target_delta = 1e-5;
  std::optional<std::uint64_t> target_steps;
  double safety_budget_reserve = 0.08;
  double accounting_adjustment_factor = 1.0;
  std::optional<std::string> accounting_approximation_policy;
  bool verify_accounting = false;               // of every step, by a second method
  std::optional<std::string> ghost_bound_hash;  // 64 hexadecimal digits

  // Clipping
  ClipStrategy clip_strategy = ClipStrategy::kPerSample;
  bool clip_ghost = false;          // clipping.ghost: norms without per-sample gradients
  double clip_norm = 1.0;           // clipping.norm; the initial bound if it is "adaptive"
  bool clip_norm_adaptive = false;  // clipping.norm: adaptive
  std::optional<NumberMap> clip_norm_map;
  std::optional<NumberMap> sensitivity_map;
  bool fused_kernel = false;
  std::uint64_t max_microbatch = 256;
  NonfinitePolicy nonfinite = NonfinitePolicy::kAbort;
  AdaptiveAccounting adaptive_accounting = AdaptiveAccounting::kConservative;
  bool allow_nonprivate_adaptation = false;
  double adaptive_noise = 10.0;  // sigma_b of the counts of adaptive clipping
  double adaptive_lower = 1e-3;  // smallest and largest bound of adaptive clipping
  double adaptive_upper = 1e3;
  std::vector<std::string> public_modules;
  std::vector<std::string> public_groups;  // from groups.NAME.public

  // Noise
  NoiseFamily noise_family = NoiseFamily::kGaussian;  // noise.family, the specification's mechanism
  double noise_multiplier = 1.0;
  std::optional<NumberMap> sigma_map;
  std::optional<NumberMap> per_layer_multiplier;  // noise.per_layer_multiplier
  AllocationMode privacy_allocation = AllocationMode::kUniform;
  std::optional<double> noise_discrete;  // noise.discrete: the grid step of discrete families
  Compression compression = Compression::kNone;
  double compression_keep = 1.0;  // fraction of coordinates kept by topk_dp and sparse_dp
  bool noise_seed_per_step = false;

  // Schedule
  ScheduleMode mode = ScheduleMode::kFixed;
  TrainingPhase training_phase = TrainingPhase::kMain;
  double decay_factor = 0.5;  // step_decay: sigma *= factor every `every` steps
  std::uint64_t decay_every = 1000;
  std::uint64_t gradient_accumulation_steps = 1;
  std::optional<AccumulationContext> accumulation_context;
  ProjectionPolicy projection_policy = ProjectionPolicy::kAdvise;
  PhaseOverride warmup, main, cooldown;  // phases.*

  // Merged by resolve(); empty afterwards
  OverrideMap modules;
  OverrideMap groups;

  // Parallelism
  ParallelismType parallelism = ParallelismType::kDpOnly;
  bool hierarchical = false;

  // Observation
  MetricsRelease metrics_release = MetricsRelease::kNone;

  friend bool operator==(const DpConfig&, const DpConfig&) = default;
};

// The sections for training from this file (room `training`). A run that uses only the mechanism,
// for instance from PyTorch, keeps their defaults. The training room checks that they are
// consistent.

enum class DataFormat : std::uint8_t {
  kDigits,  // digits: the embedded handwritten digits; no file
  kCsv,     // csv
  kIdx,     // idx: MNIST's format
  kNpy,     // npy: NumPy
};
enum class ModelKind : std::uint8_t { kLinear, kSoftmax, kMlp };  // linear, softmax, mlp
enum class Activation : std::uint8_t { kRelu, kTanh };            // relu, tanh
// A fixed map applied to each record separately; it costs no privacy.
enum class FeatureMapKind : std::uint8_t {
  kNone,
  kScattering,
  kFourier
};                                                        // none, scattering, fourier
enum class OptimizerKind : std::uint8_t { kSgd, kAdam };  // sgd, adam
enum class RateSchedule : std::uint8_t { kConstant, kCosine, kLinear };  // constant, cosine, linear

using BoundsMap = std::map<std::string, std::vector<double>>;      // by column: [lower, upper]
using WordsMap = std::map<std::string, std::vector<std::string>>;  // by column: the vocabulary
using SpellingsMap =
    std::map<std::string, std::map<std::string, std::string>>;  // by column: spelling to word

// How to treat a row that cannot be read.
enum class BadRow : std::uint8_t {
  kRefuse,  // reject: kMalformed, naming file, line and column
  kSkip,    // skip: leave it out and count it
};

// The section `data`. Every mapping applied to records is declared here, never derived from the
// data.
struct DataConfig {
  DataFormat format = DataFormat::kDigits;
  std::optional<std::string> train;         // the file; for idx and npy, the file of the features
  std::optional<std::string> train_labels;  // idx, npy
  std::optional<std::string> test;          // held-out records, in the same format
  std::optional<std::string> test_labels;
  // Without `test`: the fraction in [0, 1) held out, by public coins per record.
  double holdout = 0;
  // csv
  std::string separator = ",";
  std::vector<std::string> header;   // names of the columns of a file without a header line
  bool trim = false;                 // remove spaces around every field
  SpellingsMap map;                  // words that stand for other words, after trimming
  std::vector<std::string> missing;  // words for a missing value, after mapping; may be ""
  std::optional<std::string> label;  // name of the label column
  std::vector<std::string> classes;  // its words in order; empty: a number in label_bounds
  std::vector<double> label_bounds;  // [lower, upper]
  BoundsMap numeric;                 // columns in neither map are not read
  WordsMap categorical;              // "*" in a vocabulary matches every other word
  // Categorical columns without a vocabulary: a word is one of hash_buckets features, by its hash.
  std::vector<std::string> hashed;
  std::uint64_t hash_buckets = 64;
  std::vector<std::string> private_bounds;  // numeric columns whose bounds are released privately
  double private_bounds_noise = 10;         // multiplier of that release, a separate event (q = 1)
  BadRow on_bad_row = BadRow::kRefuse;      // csv, npy
  // idx, npy
  std::optional<std::uint64_t> class_count;  // number of classes
  std::vector<double> bounds;                // npy: [lower, upper] of every feature
  std::vector<std::uint64_t> image;          // npy, csv: [height, width] if records are images
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// The section `model`.
struct ModelConfig {
  ModelKind kind = ModelKind::kSoftmax;
  std::vector<std::uint64_t> hidden;  // mlp: sizes of the hidden layers
  Activation activation = Activation::kRelu;
  // Names of layers (layer0, layer1, ...) by group; a layer in none is a group of its own.
  WordsMap groups;
  FeatureMapKind features = FeatureMapKind::kNone;
  std::uint64_t scattering_groups = 27;  // groups for normalising each record; 0: none
  std::uint64_t fourier_count = 1024;    // random Fourier features
  double fourier_scale = 1.0;            // standard deviation of their frequencies
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The section `optimizer`: post-processing of released gradients (training/optimizer.h).
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  double rate = 0.1;
  double momentum = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double floor = 1e-8;
  bool floor_is_noise = false;  // floor: noise
  double weight_decay = 0;
  RateSchedule schedule = RateSchedule::kConstant;
  std::optional<double> average;  // decay of the average of iterates
  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

// The section `run`.
struct RunConfig {
  // Type of the released gradients, manifest.compute_dtype of the specification. All decisions use
  // binary64.
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  // Alternative to target_steps: whole passes of batches_per_epoch() steps each.
  std::optional<std::uint64_t> epochs;
  std::uint64_t checkpoint_every = 100;  // steps between checkpoints; 0: only at the end
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// How often noise is drawn for a step. Only the sum leaves the mechanism, so each choice is one
// Gaussian release with the noise s_b of the plans: with n slots, each slot has standard deviation
// s_b / sqrt(n). The number of slots is public and independent of the batch. Slots without records
// receive noise too; otherwise the variance would reveal how many there are.
enum class Injection : std::uint8_t {
  kPerStep,        // per_step: one slot
  kPerMicrobatch,  // per_microbatch: gradient_accumulation_steps slots
  kPerSample,      // per_sample: one slot per possible record of a step, most_records()
};

// The section `corpus`: contributions with signed bounds (room `admission`). Without a policy,
// records are not contributions. An empty section is not part of the hash of a configuration.
struct CorpusConfig {
  std::optional<std::string> policy;       // the file
  std::optional<std::string> descriptors;  // the anchor file of `discreet attest`
  std::optional<std::string> uses;         // the store of uses, shared by all runs of the corpus
  std::optional<std::string> ledger;       // the ledger, shared by all runs of the corpus
  std::optional<std::string> ledger_key;   // the private key that signs it
  std::optional<std::string> at;           // the start of the epoch, "2026-11-16T12:00:00Z"
  std::optional<std::string> statements;   // rotations and revocations of keys
  std::optional<std::string> withdrawn;    // hashes of descriptors, one per line
  Injection injection = Injection::kPerStep;
  // Steps that the ledger reserves and signs together, public; empty: those of an epoch of the
  // data.
  std::optional<std::uint64_t> ledger_epoch_steps;
  friend bool operator==(const CorpusConfig&, const CorpusConfig&) = default;
};

// A whole configuration file.
struct Config {
  DpConfig privacy;  // security.differential_privacy
  DataConfig data;
  ModelConfig model;
  OptimizerConfig optimizer;
  RunConfig run;
  CorpusConfig corpus;
  // For a run started by an earlier version: its hash and config.yaml contain whole paths and the
  // name of the private key.
  bool has_whole_paths = false;
  friend bool operator==(const Config&, const Config&) = default;
};

}  // namespace discreet
