#include <cmath>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/sample/sample.h"

namespace discreet::mechanism {
namespace {

constexpr std::uint64_t kMostStepsPerEpoch = std::uint64_t{1} << 24;
constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 51;

constexpr const char* kOperator = "plan_sampling";

void check_range(std::string_view key, std::optional<std::uint64_t> value) {
  if (value && (*value == 0 || *value > kMostRecords))
    invalid_config(kOperator, "{} is {}; it must be in [1, 2^51]", key, *value);
}

std::uint64_t nearest_count(double value) {
  if (!(value < static_cast<double>(kMostRecords)))
    invalid_config(kOperator, "rate and batch imply {} records; at most 2^51 can be numbered",
                   value);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::round(value)));
}

// Fills in the third of rate, batch and size.
void complete(SamplingPlan& plan) {
  const auto real = [](std::uint64_t n) { return static_cast<double>(n); };
  const bool in_order = plan.mode == SamplingMode::kSequential;
  if (in_order && !plan.rate && !plan.batch) plan.batch = plan.size;
  if (plan.size && plan.batch && *plan.batch > *plan.size)
    invalid_config(kOperator, "effective_batch_size {} exceeds declared_size {}", *plan.batch,
                   *plan.size);
  if (plan.size && plan.batch && plan.rate) {
    if (!(std::fabs(*plan.rate * real(*plan.size) - real(*plan.batch)) < 1))
      invalid_config(kOperator,
                     "sampling_rate {} times declared_size {} is not effective_batch_size {}; set "
                     "two of the three",
                     *plan.rate, *plan.size, *plan.batch);
  } else if (plan.size && plan.batch) {
    plan.rate = real(*plan.batch) / real(*plan.size);
  } else if (plan.size && plan.rate) {
    plan.batch = nearest_count(*plan.rate * real(*plan.size));
  } else if (plan.batch && plan.rate) {
    plan.size = nearest_count(real(*plan.batch) / *plan.rate);
  }
}

std::uint64_t steps_per_epoch(const SamplingPlan& plan) {
  if (plan.size && plan.batch) return (*plan.size - 1) / *plan.batch + 1;
  if (!plan.rate) return 1;
  // 1 / q with q the nearest number to 1/S must give S.
  const double steps = std::ceil(1 / *plan.rate * (1 - 0x1p-40));
  return static_cast<std::uint64_t>(std::min(steps, 2.0 * kMostStepsPerEpoch));
}

void check_needs(const SamplingPlan& plan) {
  const auto missing = [&](std::string_view what) {
    invalid_config(kOperator, "sampling_mode {} needs {}", spelling(plan.mode), what);
  };
  switch (plan.mode) {
    case SamplingMode::kTruncatedPoisson:
      if (!plan.most) missing("truncated_batch, the maximum number of records of a batch");
      [[fallthrough]];
    case SamplingMode::kFixedSize:
      if (!plan.size || !plan.batch)
        missing("declared_size, and sampling_rate or effective_batch_size");
      break;
    case SamplingMode::kPoisson:
    case SamplingMode::kBallsAndBins:
    case SamplingMode::kShuffledEpoch:
      if (!plan.rate) missing("sampling_rate, or declared_size and effective_batch_size");
      break;
    case SamplingMode::kSequential:
      if (plan.batch && !plan.rate)
        missing("declared_size in addition to effective_batch_size, or neither for full batches");
      break;
  }
  if (plan.most && *plan.most > *plan.size)
    invalid_config(kOperator, "truncated_batch {} exceeds declared_size {}", *plan.most,
                   *plan.size);
}

template <class T>
T known(const std::optional<T>& value, std::string_view what) {
  if (!value)
    invalid_config(kOperator, "the sampling plan has no {}; create it with plan_sampling", what);
  return *value;
}

template <class T>
cbor::Value or_null(const std::optional<T>& value) {
  return value ? cbor::Value(*value) : cbor::Value(nullptr);
}

}  // namespace

void check_sampling(SamplingMode mode, Subsampling subsampling) {
  const Subsampling fitting = subsampling_of(mode);
  if (subsampling == fitting) return;
  invalid_config("check_sampling",
                 "sampling_mode {} does not match subsampling {}, so the accountant would assume "
                 "another sampler; set subsampling: {}, or use another sampling_mode",
                 spelling(mode), spelling(subsampling), spelling(fitting));
}

SamplingPlan plan_sampling(const DpConfig& config) {
  check_sampling(config.sampling_mode, config.subsampling);
  check_range("declared_size", config.declared_size);
  check_range("effective_batch_size", config.effective_batch_size);
  check_range("truncated_batch", config.truncated_batch);
  if (config.sampling_rate && !(*config.sampling_rate > 0 && *config.sampling_rate <= 1))
    invalid_config(kOperator, "sampling_rate is {}; it must be in (0, 1]", *config.sampling_rate);
  const bool truncated = config.sampling_mode == SamplingMode::kTruncatedPoisson;
  if (config.truncated_batch && !truncated)
    invalid_config(kOperator,
                   "truncated_batch is {}, but sampling_mode {} does not truncate; remove it, or "
                   "use TRUNCATED_POISSON_V1",
                   *config.truncated_batch, spelling(config.sampling_mode));

  SamplingPlan plan;
  plan.mode = config.sampling_mode;
  plan.adjacency = config.adjacency;
  plan.size = config.declared_size;
  plan.rate = config.sampling_rate;
  plan.batch = config.effective_batch_size;
  plan.most = config.truncated_batch;
  complete(plan);
  check_needs(plan);
  plan.steps_per_epoch = steps_per_epoch(plan);

  // A number that the mode does not use must not distinguish equal samplers.
  const bool by_coins = plan.mode == SamplingMode::kPoisson || truncated;
  if (!by_coins && plan.size && plan.batch)
    plan.rate = static_cast<double>(*plan.batch) / static_cast<double>(*plan.size);

  plan.check();
  return plan;
}

void SamplingPlan::check() const {
  if (steps_per_epoch == 0 || steps_per_epoch > kMostStepsPerEpoch)
    invalid_config(kOperator, "an epoch must have 1 to 2^24 steps; use a larger rate or batch");
  if (adjacency == accounting::Adjacency::kAddRemove) {
    if (!size)
      invalid_config(kOperator,
                     "the number of records is not declared, so adjacency add_remove does not "
                     "hold; set declared_size, or adjacency: zero_out");
    if (mode == SamplingMode::kSequential && steps_per_epoch > 1)
      invalid_config(
          kOperator,
          "SEQUENTIAL_V1 with several batches has no guarantee under add_remove, because removing "
          "a record moves all later ones; set adjacency: zero_out, or use full batches");
  }
  accounting::Event(accounting::Gaussian{1}, sampling(), adjacency);
}

accounting::Sampling SamplingPlan::sampling() const {
  switch (mode) {
    case SamplingMode::kPoisson: return accounting::Poisson{known(rate, "rate")};
    case SamplingMode::kTruncatedPoisson:
      return accounting::TruncatedPoisson{known(rate, "rate"), known(most, "largest batch"),
                                          known(size, "size")};
    case SamplingMode::kFixedSize:
      return accounting::FixedSize{known(batch, "batch"), known(size, "size")};
    case SamplingMode::kBallsAndBins: return accounting::BallsAndBins{steps_per_epoch};
    case SamplingMode::kShuffledEpoch: return accounting::ShuffledEpoch{steps_per_epoch};
    case SamplingMode::kSequential: break;
  }
  return accounting::NoSampling{};
}

std::uint64_t SamplingPlan::steps_per_event() const noexcept {
  const bool whole_epochs =
      mode == SamplingMode::kBallsAndBins || mode == SamplingMode::kShuffledEpoch;
  return whole_epochs ? steps_per_epoch : 1;
}

Digest SamplingPlan::hash() const {
  return sha256(cbor::encode(cbor::map({{"format", "sampler_v1"},
                                        {"mode", spelling(mode)},
                                        {"adjacency", accounting::to_string(adjacency)},
                                        {"size", or_null(size)},
                                        {"rate", or_null(rate)},
                                        {"batch", or_null(batch)},
                                        {"most", or_null(most)},
                                        {"steps_per_epoch", steps_per_epoch}})));
}

}  // namespace discreet::mechanism
