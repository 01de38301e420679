#include "discreet/data/features.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/data/matrix.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/parallel.h"
#include "discreet/random/gaussian.h"

namespace discreet::data {
namespace {

constexpr std::size_t kTile = 64;  // records at a time, as matrix.h cuts them

constexpr const char* kOperator = "model.features";

// Channels [begin, end) of the same order and scale.
constexpr std::array<std::pair<std::size_t, std::size_t>, 3> kFamilies = {
    {{1, 9}, {9, 17}, {17, Scattering::kChannels}}};

// Every position loses the mean of each family there.
void centre_families(std::span<float> record) {
  const std::size_t positions = record.size() / Scattering::kChannels;
  std::vector<double> mean(positions);
  for (const auto& [begin, end] : kFamilies) {
    std::ranges::fill(mean, 0.0);
    for (std::size_t c = begin; c < end; ++c)
      for (std::size_t p = 0; p < positions; ++p)
        mean[p] += static_cast<double>(record[c * positions + p]);
    for (double& m : mean) m /= static_cast<double>(end - begin);
    for (std::size_t c = begin; c < end; ++c)
      for (std::size_t p = 0; p < positions; ++p) {
        float& v = record[c * positions + p];
        v = static_cast<float>(static_cast<double>(v) - mean[p]);
      }
  }
}

void normalise_groups(std::span<float> record, std::size_t groups) {
  const std::size_t length = record.size() / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::span<float> group = record.subspan(g * length, length);
    double sum = 0, squares = 0;
    for (const float v : group) sum += static_cast<double>(v);
    const double mean = sum / static_cast<double>(length);
    for (const float v : group) {
      const double d = static_cast<double>(v) - mean;
      squares += d * d;
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(length) + 1e-5);
    for (float& v : group) v = static_cast<float>((static_cast<double>(v) - mean) * scale);
  }
}

}  // namespace

FeatureMap::FeatureMap(const ModelConfig& config, std::size_t features, std::size_t height,
                       std::size_t width, const random::Key& public_key)
    : features_(features), size_(features) {
  if (config.features == FeatureMapKind::kScattering) {
    if (height == 0 || height * width != features)
      invalid_config(kOperator,
                     "scattering needs images, but records of {} numbers are not declared as "
                     "images; set data.image: [height, width]",
                     features);
    groups_ = config.scattering_groups;
    if (groups_ != 0 && (groups_ > Scattering::kChannels || Scattering::kChannels % groups_ != 0))
      invalid_config(kOperator,
                     "model.scattering_groups is {}, which does not divide the 81 channels; use 1, "
                     "3, 9, 27, 81, or 0 for none",
                     groups_);
    scattering_.emplace(height, width);
    size_ = scattering_->size();
  } else if (config.features == FeatureMapKind::kFourier) {
    if (config.fourier_count < 2 || config.fourier_count % 2 != 0 ||
        config.fourier_count > (std::size_t{1} << 24))
      invalid_config(kOperator,
                     "model.fourier_count is {}; it must be an even number from 2 to 2^24: a "
                     "cosine and a sine for each frequency",
                     config.fourier_count);
    if (!(config.fourier_scale > 0) || !std::isfinite(config.fourier_scale))
      invalid_config(kOperator, "model.fourier_scale is {}; it must be positive",
                     config.fourier_scale);
    size_ = config.fourier_count;
    frequencies_.resize(size_ / 2 * features);
    const random::Generator generator(random::Algorithm::kPhilox4x32,
                                      public_key.derive("features"));
    random::fill_gaussian(generator, random::Position::at(0, 0), config.fourier_scale,
                          frequencies_);
  }
}

void FeatureMap::normalise(std::span<float> record) const {
  normalise_groups(record, groups_);
  centre_families(record);
  normalise_groups(record, groups_);
}

void FeatureMap::apply(std::span<const float> x, std::size_t records, std::span<float> out,
                       int threads) const {
  if (x.size() != records * features_ || out.size() != records * size_)
    invalid_input(
        "FeatureMap::apply",
        "found {} numbers in and {} out for {} records; expected {} out and {} in per record",
        x.size(), out.size(), records, size_, features_);
  if (scattering_) {
    scattering_->apply(x, records, out, threads);
    if (groups_ == 0) return;
    numerics::parallel_items(records, threads, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) normalise(out.subspan(i * size_, size_));
    });
  } else if (!frequencies_.empty()) {
    const std::size_t half = size_ / 2;
    const double scale = std::sqrt(1 / static_cast<double>(half));
    const std::size_t tiles = (records + kTile - 1) / kTile;
    numerics::parallel_items(tiles, threads, [&](std::size_t begin, std::size_t end) {
      std::vector<float> phase(kTile * half);
      std::vector<double> angle(half), sine(half), cosine(half);
      for (std::size_t tile = begin; tile < end; ++tile) {
        const std::size_t first = tile * kTile, count = std::min(kTile, records - first);
        multiply_transposed(x.subspan(first * features_, count * features_), frequencies_, phase,
                            count, half, features_, 1);
        for (std::size_t i = 0; i < count; ++i) {
          std::copy_n(phase.begin() + static_cast<std::ptrdiff_t>(i * half), half, angle.begin());
          numerics::sin_cos(angle, sine, cosine);
          float* const to = out.data() + (first + i) * size_;
          for (std::size_t k = 0; k < half; ++k) {
            to[k] = static_cast<float>(scale * cosine[k]);
            to[half + k] = static_cast<float>(scale * sine[k]);
          }
        }
      }
    });
  } else {
    std::ranges::copy(x, out.begin());
  }
}

}  // namespace discreet::data
