#include "discreet/training/defaults.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/run/run_files.h"

namespace discreet::training {
namespace {

constexpr std::string_view kDefaulted[] = {
    "security.differential_privacy.nonfinite",
    "security.differential_privacy.effective_batch_size",
    "security.differential_privacy.target_steps",
    "security.differential_privacy.mode",
    "optimizer.rate",
    "optimizer.floor",
    "optimizer.average",
};

constexpr double kSteps = 1000;
constexpr double kEpochs = 40;
constexpr double kReach = 10000;      // of all steps, in clip norms
constexpr double kNoiseOfOutput = 4;  // standard deviation
constexpr double kAdamPerSgd = 1.0 / 40;
constexpr double kUnknownColumns = 784;  // files whose width the configuration does not say

double columns_of(const Config& c) {
  if (c.model.features == FeatureMapKind::kFourier) return 0;  // vectors of norm 1
  switch (c.data.format) {
    case DataFormat::kDigits: return 64;
    case DataFormat::kCsv:
      return static_cast<double>(c.data.numeric.size() + c.data.private_bounds.size() +
                                 c.data.categorical.size() + c.data.hashed.size());
    case DataFormat::kIdx:
    case DataFormat::kNpy: break;
  }
  return kUnknownColumns;
}

class Defaults {
 public:
  explicit Defaults(const ReadConfig& read)
      : read_(read), config_(read.config), dp_(read.config.privacy) {
    set("security.differential_privacy.nonfinite", "zero");
    if (!dp_.enabled || config_.corpus.policy) return;
    sampling();
    length();
    noise();
    optimizer();
  }

  std::vector<std::string> settings;

 private:
  bool has(std::string_view key) const { return read_.where.contains(std::string(key)); }
  bool has_dp(std::string_view key) const {
    return has(std::string("security.differential_privacy.").append(key));
  }

  void set(std::string_view key, std::string_view value) {
    if (!has(key)) settings.push_back(fmt::format("{}={}", key, value));
  }

  bool is_noise_given() const {
    return has_dp("noise_multiplier") || has_dp("mode") || dp_.warmup.noise_multiplier ||
           dp_.main.noise_multiplier || dp_.cooldown.noise_multiplier;
  }

  // Rate and batch determine each other only with the size.
  void sampling() {
    if (dp_.declared_size) size_ = static_cast<double>(*dp_.declared_size);
    if (dp_.effective_batch_size) {
      batch_ = static_cast<double>(*dp_.effective_batch_size);
    } else if (dp_.sampling_rate) {
      if (size_) batch_ = std::max(1.0, std::round(*dp_.sampling_rate * *size_));
    } else if (size_) {
      batch_ = dp_.sampling_mode == SamplingMode::kSequential
                   ? *size_
                   : std::min(*size_, std::max(512.0, std::floor(*size_ / 25)));
      set("security.differential_privacy.effective_batch_size", fmt::format("{:.0f}", *batch_));
    }
  }

  void length() {
    const double per_epoch = size_ && batch_ ? std::ceil(*size_ / *batch_) : 0;
    if (dp_.target_steps) {
      steps_ = static_cast<double>(*dp_.target_steps);
    } else if (config_.run.epochs) {
      if (per_epoch > 0) steps_ = static_cast<double>(*config_.run.epochs) * per_epoch;
    } else if (!is_noise_given()) {
      if (!is_epoch_event(dp_.sampling_mode))
        steps_ = kSteps;
      else if (per_epoch > 0)
        steps_ = kEpochs * per_epoch;
      if (steps_) set("security.differential_privacy.target_steps", fmt::format("{:.0f}", *steps_));
    }
  }

  void noise() {
    if (!is_noise_given() && steps_)
      set("security.differential_privacy.mode", "meet_exactly_at_target_steps");
  }

  void optimizer() {
    const bool adam = config_.optimizer.kind == OptimizerKind::kAdam;
    if (adam) set("optimizer.floor", "noise");
    if (steps_ && *steps_ >= 50) set("optimizer.average", fmt::format("{}", 1 - 10 / *steps_));
    if (!steps_ || !size_ || !batch_ || !(dp_.target_epsilon > 0) || !(dp_.target_delta > 0))
      return;
    const double mu = has_dp("noise_multiplier")
                          ? std::sqrt(*steps_) * *batch_ / (dp_.noise_multiplier * *size_)
                          : dp_.target_epsilon / std::sqrt(2 * std::log(1.25 / dp_.target_delta));
    const double norm_square = columns_of(config_) + 1;
    const double reach = std::min(kReach, kNoiseOfOutput * mu * *size_ / std::sqrt(norm_square));
    double rate = reach / *steps_ / dp_.clip_norm;
    if (config_.model.kind == ModelKind::kLinear) rate = std::min(rate, 1 / norm_square);
    if (adam) rate *= kAdamPerSgd;
    if (!adam) rate *= 1 - config_.optimizer.momentum;
    if (std::isfinite(rate) && rate > 0) set("optimizer.rate", fmt::format("{:.3g}", rate));
  }

  const ReadConfig& read_;
  const Config& config_;
  const DpConfig& dp_;
  std::optional<double> size_, batch_, steps_;
};

struct Text {
  std::string operator()(std::monostate) const { return "null"; }
  template <class T>
  std::string operator()(const T& value) const {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
      return fmt::format("{}", value);
    else
      return {};
  }
};

}  // namespace

std::vector<std::string> default_settings(const ReadConfig& read) {
  return Defaults(read).settings;
}

std::vector<std::string> settings_of_run(const ReadConfig& read,
                                         const std::filesystem::path& directory) {
  const Config before = run::read_config(directory);
  std::vector<std::string> out;
  for (const Key<Config>& key : config_keys())
    if (std::ranges::count(kDefaulted, key.path) != 0 && !read.where.contains(key.path))
      out.push_back(fmt::format("{}={}", key.path, std::visit(Text{}, key.get(before))));
  return out;
}

}  // namespace discreet::training
