#include "discreet/training/advice.h"

#include <fmt/core.h>

#include <cmath>

namespace discreet::training {
namespace {

std::string about_delta(const DpConfig& dp) {
  if (!dp.declared_size) return {};
  const auto records = static_cast<double>(*dp.declared_size);
  if (dp.target_delta < 1 / records) return {};
  return fmt::format(
      "target_delta {} is at least 1 / declared_size: publishing a record chosen at random would "
      "keep such a promise; set target_delta well below {:.1g}, such as {:.0e}",
      dp.target_delta, 1 / records, std::pow(10, std::floor(std::log10(0.1 / records))));
}

// In the mean of the steps, the noise is a vector of about this norm, in units of the clip norm;
// the mean of the gradients has at most norm 1.
double noise_to_signal(const DpConfig& dp, std::uint64_t parameters, std::uint64_t steps) {
  return dp.noise_multiplier * std::sqrt(static_cast<double>(parameters)) /
         (static_cast<double>(*dp.effective_batch_size) * std::sqrt(static_cast<double>(steps)));
}

std::string about_noise(const Config& config, std::uint64_t parameters, std::uint64_t steps) {
  const DpConfig& dp = config.privacy;
  if (!dp.effective_batch_size || steps == 0 || config.corpus.policy ||
      dp.mode != ScheduleMode::kFixed)
    return {};
  const double ratio = noise_to_signal(dp, parameters, steps);
  if (ratio <= 1) return {};
  return fmt::format(
      "the noise is {:.1f} times the strongest possible signal, even averaged over all {} steps: "
      "noise_multiplier x sqrt({} parameters) / (effective_batch_size x sqrt(steps)); the model "
      "will hold mostly noise. Sensible is less than 0.1: lower noise_multiplier, or raise "
      "effective_batch_size; 'discreet plan' finds the noise that a budget needs",
      ratio, steps, parameters);
}

}  // namespace

std::vector<std::string> advice(const Config& resolved, std::uint64_t parameters,
                                std::uint64_t steps) {
  std::vector<std::string> out;
  if (!resolved.privacy.enabled) return out;
  for (const std::string& each :
       {about_delta(resolved.privacy), about_noise(resolved, parameters, steps)})
    if (!each.empty()) out.push_back(each);
  return out;
}

std::uint64_t skipped_rows(const data::Data& data) {
  return data.train.skipped.size() + (data.test ? data.test->skipped.size() : 0);
}

std::vector<std::string> confidential_advice(const Config& resolved, const data::Data& data,
                                             std::uint64_t rows) {
  std::vector<std::string> out;
  const auto& declared = resolved.privacy.declared_size;
  if (declared && rows < *declared / 2)
    out.push_back(fmt::format(
        "declared_size is {}, more than twice the {} training records: batches are smaller than "
        "declared, and the noise is as large as for {} records; if a smaller number is public, "
        "declare it",
        *declared, rows, *declared));
  if (const std::uint64_t skipped = skipped_rows(data); skipped > 0)
    out.push_back(fmt::format("{} rows could not be read and were left out", skipped));
  return out;
}

}  // namespace discreet::training
