#include "discreet/data/private_bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/numerics/rounding.h"
#include "discreet/random/gaussian.h"

namespace discreet::data {
namespace {

constexpr double kEmptyBelow = 4.5;  // standard deviations
constexpr double kCutShare = 0.005;
constexpr int kMagnitudes = kLargestBoundsExponent - kLeastBoundsExponent;
constexpr std::string_view kStream = "private_bounds";

// The lower edge of a bucket; of kBoundsBuckets the upper edge of the last.
double edge(std::size_t bucket) {
  const int i = static_cast<int>(bucket);
  return i <= kMagnitudes ? -std::ldexp(1.0, kLargestBoundsExponent - i)
                          : std::ldexp(1.0, kLeastBoundsExponent + (i - kMagnitudes - 1));
}

NumericColumn bounds_of(const std::string& column, std::vector<double> noisy, double deviation) {
  double left = 0;
  for (double& count : noisy) {
    if (count < kEmptyBelow * deviation) count = 0;
    left += count;
  }
  if (!(left > 0))
    invalid_config("data",
                   "data.private_bounds of {}: no bucket exceeds noise of standard deviation {}; "
                   "declare data.numeric.{}: [lower, upper], or lower data.private_bounds_noise. "
                   "The cost of this attempt is spent: another attempt is another release",
                   column, deviation, column);
  const auto first_kept = [&](auto begin, auto end) {
    double cut = 0;
    return std::find_if(begin, end, [&](double count) {
      cut += count;
      return cut > kCutShare * left;
    });
  };
  const auto lower = first_kept(noisy.begin(), noisy.end()) - noisy.begin();
  const auto upper = noisy.rend() - first_kept(noisy.rbegin(), noisy.rend());
  return {edge(static_cast<std::size_t>(lower)), edge(static_cast<std::size_t>(upper))};
}

mechanism::PriorRelease release_of(std::size_t columns, double noise_multiplier,
                                   accounting::Adjacency adjacency) {
  return {private_bounds_event(noise_multiplier, adjacency), columns * kBoundsBuckets};
}

std::vector<std::vector<double>> count_csv(CsvRows rows, const std::vector<std::string>& columns,
                                           BadRow on_bad_row) {
  std::vector<std::size_t> at;
  for (const std::string& name : columns) at.push_back(rows.column(name));
  std::vector<std::vector<double>> counts(columns.size(), std::vector<double>(kBoundsBuckets));
  std::vector<std::size_t> buckets(columns.size());
  rows.for_each(on_bad_row, [&](const std::vector<std::string_view>& fields) {
    for (std::size_t c = 0; c < columns.size(); ++c) try {
        const std::string_view text = fields[at[c]];
        buckets[c] = rows.format().is_missing(text)
                         ? kBoundsBuckets
                         : bounds_bucket(parse_number(text, kMayBeMissing));
      } catch (BadField& bad) {
        bad.column = columns[c];
        throw;
      }
    // Only a whole row counts, and of it every number that is not missing.
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (buckets[c] != kBoundsBuckets) ++counts[c][buckets[c]];
  });
  return counts;
}

}  // namespace

std::size_t bounds_bucket(double value) noexcept {
  const double size = std::fabs(value);
  if (!(size >= std::ldexp(1.0, kLeastBoundsExponent))) return kMagnitudes;
  const int magnitude = std::min(std::ilogb(size), kLargestBoundsExponent - 1);
  const int outward = magnitude - kLeastBoundsExponent + 1;  // from the middle bucket
  return static_cast<std::size_t>(value < 0 ? kMagnitudes - outward : kMagnitudes + outward);
}

accounting::Event private_bounds_event(double noise_multiplier, accounting::Adjacency adjacency) {
  return {accounting::Gaussian{noise_multiplier}, accounting::NoSampling{}, adjacency};
}

PrivateBounds release_bounds(const std::vector<std::string>& columns,
                             std::vector<std::vector<double>> counts, double noise_multiplier,
                             accounting::Adjacency adjacency, const random::Generator& noise) {
  // Twice up: the square root and the product may each have been rounded down.
  const double deviation = numerics::next_up(
      noise_multiplier * numerics::next_up(std::sqrt(static_cast<double>(columns.size()))));
  PrivateBounds out{{}, release_of(columns.size(), noise_multiplier, adjacency)};
  for (std::size_t c = 0; c < columns.size(); ++c)
    random::add_gaussian(noise, random::Position::at(0, c), deviation, std::span(counts.at(c)));
  for (std::size_t c = 0; c < columns.size(); ++c)
    out.bounds.emplace(columns[c], bounds_of(columns[c], std::move(counts[c]), deviation));
  return out;
}

PrivateBounds release_csv_bounds(CsvRows rows, const std::vector<std::string>& columns,
                                 double noise_multiplier, accounting::Adjacency adjacency,
                                 const random::Generator& noise, BadRow on_bad_row) {
  return release_bounds(columns, count_csv(std::move(rows), columns, on_bad_row), noise_multiplier,
                        adjacency, noise);
}

mechanism::PriorRelease plan_csv_bounds(CsvRows rows, const std::vector<std::string>& columns,
                                        double noise_multiplier, accounting::Adjacency adjacency,
                                        BadRow on_bad_row) {
  count_csv(std::move(rows), columns, on_bad_row);
  return release_of(columns.size(), noise_multiplier, adjacency);
}

random::Generator private_bounds_stream(const DpConfig& config, const random::Key& master) {
  if (config.secure) return random::Generator::secure(master.derive(kStream));
  return {random::Algorithm::kPhilox4x32, random::Key::from_seed(config.seed).derive(kStream)};
}

}  // namespace discreet::data
