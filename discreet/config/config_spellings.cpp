#include <array>

#include "discreet/config/config_table.h"

namespace discreet {
namespace {

template <std::size_t n>
using Words = std::array<std::string_view, n>;

constexpr Words<5> kAccountants = {"pld", "moments", "rdp", "f_dp", "gdp"};
constexpr Words<3> kSubsamplings = {"POISSON", "SHUFFLE_WITHOUT_REPLACEMENT", "NONE"};
constexpr Words<6> kSamplingModes = {
    "POISSON_V1",
    "TRUNCATED_POISSON_V1",
    "SHUFFLE_WITHOUT_REPLACEMENT_FIXED_SIZE_V1",
    "SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1",
    "SHUFFLE_WITHOUT_REPLACEMENT_EPOCH_V1",
    "SEQUENTIAL_V1",
};
constexpr Words<2> kGranularities = {"PER_STEP", "PER_EPOCH"};
constexpr Words<8> kClipStrategies = {"per_sample", "ghost",  "per_layer",     "per_group",
                                      "per_tensor", "hybrid", "peft_targeted", "adaptive"};
constexpr Words<5> kNoiseFamilies = {"gaussian", "discrete_gaussian", "rounded_gaussian", "skellam",
                                     "laplace"};
constexpr Words<3> kCompressions = {"none", "topk_dp", "sparse_dp"};
constexpr Words<5> kScheduleModes = {"fixed", "budget_adaptive", "meet_exactly_at_target_steps",
                                     "step_decay", "dynamic_projection"};
constexpr Words<2> kAdaptiveAccountings = {"conservative", "heuristic"};
constexpr Words<3> kAllocationModes = {"uniform", "layer_wise", "custom"};
constexpr Words<5> kParallelismTypes = {"dp_only", "3d", "fsdp2", "zero3", "moe"};
constexpr Words<3> kTrainingPhases = {"warmup", "main", "cooldown"};
constexpr Words<2> kNonfinitePolicies = {"abort", "zero"};
constexpr Words<2> kMetricsReleases = {"none", "dp"};
constexpr Words<3> kProjectionPolicies = {"advise", "upscale", "abort"};
constexpr Words<3> kComputeDtypes = {"float32", "float64", "bfloat16"};
constexpr Words<3> kAdjacencies = {"add_remove", "zero_out", "replace_one"};
constexpr Words<4> kDataFormats = {"digits", "csv", "idx", "npy"};
constexpr Words<2> kBadRows = {"reject", "skip"};
constexpr Words<3> kModelKinds = {"linear", "softmax", "mlp"};
constexpr Words<2> kActivations = {"relu", "tanh"};
constexpr Words<3> kFeatureMapKinds = {"none", "scattering", "fourier"};
constexpr Words<2> kOptimizerKinds = {"sgd", "adam"};
constexpr Words<3> kRateSchedules = {"constant", "cosine", "linear"};
constexpr Words<3> kInjections = {"per_step", "per_microbatch", "per_sample"};

}  // namespace

std::span<const std::string_view> spellings(AccountantKind) { return kAccountants; }
std::span<const std::string_view> spellings(Subsampling) { return kSubsamplings; }
std::span<const std::string_view> spellings(SamplingMode) { return kSamplingModes; }
std::span<const std::string_view> spellings(Granularity) { return kGranularities; }
std::span<const std::string_view> spellings(ClipStrategy) { return kClipStrategies; }
std::span<const std::string_view> spellings(NoiseFamily) { return kNoiseFamilies; }
std::span<const std::string_view> spellings(Compression) { return kCompressions; }
std::span<const std::string_view> spellings(ScheduleMode) { return kScheduleModes; }
std::span<const std::string_view> spellings(AdaptiveAccounting) { return kAdaptiveAccountings; }
std::span<const std::string_view> spellings(AllocationMode) { return kAllocationModes; }
std::span<const std::string_view> spellings(ParallelismType) { return kParallelismTypes; }
std::span<const std::string_view> spellings(TrainingPhase) { return kTrainingPhases; }
std::span<const std::string_view> spellings(NonfinitePolicy) { return kNonfinitePolicies; }
std::span<const std::string_view> spellings(MetricsRelease) { return kMetricsReleases; }
std::span<const std::string_view> spellings(ProjectionPolicy) { return kProjectionPolicies; }
std::span<const std::string_view> spellings(ComputeDtype) { return kComputeDtypes; }
std::span<const std::string_view> spellings(accounting::Adjacency) { return kAdjacencies; }
std::span<const std::string_view> spellings(DataFormat) { return kDataFormats; }
std::span<const std::string_view> spellings(BadRow) { return kBadRows; }
std::span<const std::string_view> spellings(ModelKind) { return kModelKinds; }
std::span<const std::string_view> spellings(Activation) { return kActivations; }
std::span<const std::string_view> spellings(FeatureMapKind) { return kFeatureMapKinds; }
std::span<const std::string_view> spellings(OptimizerKind) { return kOptimizerKinds; }
std::span<const std::string_view> spellings(RateSchedule) { return kRateSchedules; }
std::span<const std::string_view> spellings(Injection) { return kInjections; }

}  // namespace discreet
