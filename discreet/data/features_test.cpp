#include "discreet/data/features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/random/gaussian.h"

namespace discreet::data {
namespace {

random::Key key(std::uint64_t seed = 1) { return random::Key::from_seed(seed); }

std::vector<float> gaussian(std::size_t count, std::uint64_t seed) {
  const random::Generator generator(random::Algorithm::kPhilox4x32, key(seed));
  std::vector<float> out(count);
  random::fill_gaussian(generator, random::Position::at(0, 0), 1, out);
  return out;
}

ModelConfig scattering(std::uint64_t groups) {
  ModelConfig config;
  config.features = FeatureMapKind::kScattering;
  config.scattering_groups = groups;
  return config;
}
ModelConfig fourier(std::uint64_t count, double scale) {
  ModelConfig config;
  config.features = FeatureMapKind::kFourier;
  config.fourier_count = count;
  config.fourier_scale = scale;
  return config;
}

std::vector<float> apply(const FeatureMap& map, std::span<const float> x, std::size_t records,
                         int threads = 1) {
  std::vector<float> out(records * map.size());
  map.apply(x, records, out, threads);
  return out;
}

TEST(FeatureMap, OfNoneIsTheRecord) {
  const FeatureMap map(ModelConfig{}, 5, 0, 0, key());
  const std::vector<float> x = gaussian(15, 1);
  EXPECT_EQ(map.size(), 5U);
  EXPECT_EQ(apply(map, x, 3), x);
}

// The three steps of features.h in binary64, as they are written there.
TEST(FeatureMap, NormalisesTheScatteringOfEachRecord) {
  const std::size_t records = 3, positions = 4, size = 81 * positions;
  const std::vector<float> x = gaussian(records * 64, 2);
  const std::vector<float> raw = apply(FeatureMap(scattering(0), 64, 8, 8, key()), x, records);
  std::vector<double> v(raw.begin(), raw.end());
  const auto over_families = [&] {
    for (std::size_t record = 0; record < records; ++record)
      for (std::size_t p = 0; p < positions; ++p)
        for (const auto& [from, count] : {std::pair{1, 8}, {9, 8}, {17, 64}}) {
          double mean = 0;
          const auto at = [&](int c) {
            return record * size + std::size_t(from + c) * positions + p;
          };
          for (int c = 0; c < count; ++c) mean += v[at(c)] / count;
          for (int c = 0; c < count; ++c) v[at(c)] -= mean;
        }
  };
  const auto over_groups = [&] {
    const std::size_t length = 3 * positions;  // 81 / 27 channels
    for (std::size_t begin = 0; begin < v.size(); begin += length) {
      double mean = 0, variance = 0;
      for (std::size_t i = 0; i < length; ++i) mean += v[begin + i] / double(length);
      for (std::size_t i = 0; i < length; ++i)
        variance += (v[begin + i] - mean) * (v[begin + i] - mean) / double(length);
      for (std::size_t i = 0; i < length; ++i)
        v[begin + i] = (v[begin + i] - mean) / std::sqrt(variance + 1e-5);
    }
  };
  over_groups();
  over_families();
  over_groups();
  const std::vector<float> out = apply(FeatureMap(scattering(27), 64, 8, 8, key()), x, records);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], v[i], 2e-5) << i;
}

TEST(FeatureMap, OfAnImageWithoutInkIsFinite) {
  const FeatureMap map(scattering(27), 64, 8, 8, key());
  for (const float v : apply(map, std::vector<float>(64), 1)) EXPECT_EQ(v, 0);
}

// The soundness of "costs no privacy": bit for bit, a record's features do not know the others.
TEST(FeatureMap, OfARecordIsTheSameBitsWhateverTheOtherRecordsAre) {
  const std::size_t records = 200;
  for (const ModelConfig& config : {scattering(27), scattering(0), fourier(64, 0.3)}) {
    const FeatureMap map(config, 64, 8, 8, key());
    std::vector<float> x = gaussian(records * 64, 3);
    const std::vector<float> before = apply(map, x, records, 3);
    const std::size_t kept = 77;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i / 64 != kept) x[i] = 100 * x[i] + 1;
    const std::vector<float> after = apply(map, x, records, 2);
    EXPECT_EQ(std::memcmp(before.data() + kept * map.size(), after.data() + kept * map.size(),
                          map.size() * sizeof(float)),
              0);
    // An infinite neighbour changes nothing either.
    x[0] = std::numeric_limits<float>::infinity();
    const std::vector<float> beside = apply(map, x, records, 1);
    EXPECT_EQ(std::memcmp(before.data() + kept * map.size(), beside.data() + kept * map.size(),
                          map.size() * sizeof(float)),
              0);
  }
}

TEST(FeatureMap, HasTheSameBitsForAnyNumberOfThreads) {
  for (const ModelConfig& config : {scattering(9), fourier(128, 0.5)}) {
    const FeatureMap map(config, 64, 8, 8, key());
    const std::vector<float> x = gaussian(333 * 64, 4);
    EXPECT_EQ(apply(map, x, 333, 1), apply(map, x, 333, 7));
  }
}

// |mean of 2048 cosines - kernel| > 0.1 has probability 2 e^-20.5 a pair (features.md).
TEST(FeatureMap, HasProductsOfFourierFeaturesNearTheGaussianKernel) {
  const std::size_t n = 10, records = 20;
  const double scale = 0.35;
  const FeatureMap map(fourier(4096, scale), n, 0, 0, key(6));
  const std::vector<float> x = gaussian(records * n, 5);
  const std::vector<float> out = apply(map, x, records);
  for (std::size_t i = 0; i < records; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double distance = 0, product = 0;
      for (std::size_t k = 0; k < n; ++k)
        distance += std::pow(double(x[i * n + k]) - double(x[j * n + k]), 2);
      for (std::size_t k = 0; k < map.size(); ++k)
        product += double(out[i * map.size() + k]) * double(out[j * map.size() + k]);
      EXPECT_NEAR(product, std::exp(-scale * scale * distance / 2), i == j ? 1e-6 : 0.1);
    }
}

TEST(FeatureMap, DrawsOtherFrequenciesFromAnotherPublicKey) {
  const std::vector<float> x = gaussian(8, 5);
  const auto with = [&](std::uint64_t seed) {
    return apply(FeatureMap(fourier(16, 1), 8, 0, 0, key(seed)), x, 1);
  };
  EXPECT_EQ(with(1), with(1));
  EXPECT_NE(with(1), with(2));
}

TEST(FeatureMap, RefusesSettingsThatAreNone) {
  const auto refused = [](const ModelConfig& config, std::size_t height, std::size_t width) {
    try {
      FeatureMap(config, 64, height, width, key());
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidDpConfig;
    }
  };
  EXPECT_TRUE(refused(scattering(27), 0, 0)) << "no image";
  EXPECT_TRUE(refused(scattering(27), 8, 9)) << "another size";
  EXPECT_TRUE(refused(scattering(2), 8, 8)) << "groups that do not divide 81";
  EXPECT_TRUE(refused(scattering(1u << 30), 8, 8)) << "more groups than channels";
  EXPECT_TRUE(refused(fourier(15, 1), 0, 0)) << "half a frequency";
  EXPECT_TRUE(refused(fourier(0, 1), 0, 0));
  EXPECT_TRUE(refused(fourier(std::uint64_t{1} << 60, 1), 0, 0));
  EXPECT_TRUE(refused(fourier(16, 0), 0, 0));
  EXPECT_TRUE(refused(fourier(16, std::nan("")), 0, 0));
  EXPECT_FALSE(refused(scattering(27), 8, 8));
}

TEST(FeatureMap, RefusesOtherSizes) {
  const FeatureMap map(fourier(16, 1), 8, 0, 0, key());
  std::vector<float> x(16), out(32);
  EXPECT_THROW(map.apply(x, 3, out, 1), Error);
  EXPECT_THROW(map.apply(x, 2, std::span(out).first(31), 1), Error);
  EXPECT_NO_THROW(map.apply({}, 0, {}, 1));
}

}  // namespace
}  // namespace discreet::data
