#include "discreet/mechanism/noise/compression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

ModelLayout layout() {
  return ModelLayout({{.name = "a.w", .shape = {4, 5}},
                      {.name = "frozen", .shape = {3}, .trainable = false},
                      {.name = "b.w", .shape = {7}}});
}

random::Generator generator() {
  return random::Generator(random::Algorithm::kPhilox4x32,
                           random::Key::from_seed(3).derive("mask"));
}

TEST(Compression, KeepsTheAskedShareOfEveryPrivateTensor) {
  const auto mask = CoordinateMask::sparse(layout(), 0.3, generator(), 0);
  EXPECT_EQ(mask.kept(0).size(), 6u);
  EXPECT_TRUE(mask.kept(1).empty());
  EXPECT_EQ(mask.kept(2).size(), 3u);
  const ModelLayout reduced = mask.reduced(layout());
  EXPECT_EQ(reduced.private_parameters(), 9u);
  EXPECT_EQ(partition(reduced, Cut::kLayer).names, partition(layout(), Cut::kLayer).names);
  EXPECT_EQ(CoordinateMask::sparse(layout(), 1, generator(), 0), CoordinateMask::all(layout()));
}

TEST(Compression, DrawsASparseMaskFromPublicRandomnessAnewInEveryStep) {
  const auto zero = CoordinateMask::sparse(layout(), 0.5, generator(), 0);
  EXPECT_EQ(zero, CoordinateMask::sparse(layout(), 0.5, generator(), 0));
  bool differs = false;
  std::vector<int> seen(20);
  for (std::uint64_t t = 0; t < 400; ++t) {
    const auto mask = CoordinateMask::sparse(layout(), 0.5, generator(), t);
    differs = differs || !(mask == zero);
    for (const std::uint64_t k : mask.kept(0)) ++seen[k];
  }
  EXPECT_TRUE(differs);
  // Each of 20 coordinates is kept in 400 steps with probability 1/2: 200 ± 4.9 * 10.
  for (const int count : seen) EXPECT_NEAR(count, 200, 49);
}

TEST(Compression, KeepsTheLargestAndTheLowerIndexOnATie) {
  GradientSum magnitudes(layout());
  magnitudes.tensor(2)[1] = -9;
  magnitudes.tensor(2)[4] = 5;
  magnitudes.tensor(2)[6] = 5;
  const auto mask = CoordinateMask::largest(layout(), 2.0 / 7, magnitudes);
  EXPECT_EQ(std::vector<std::uint64_t>(mask.kept(2).begin(), mask.kept(2).end()),
            (std::vector<std::uint64_t>{1, 4}));
  magnitudes.tensor(0)[0] = std::nan("");
  EXPECT_THROW(CoordinateMask::largest(layout(), 0.5, magnitudes), Error);
}

TEST(Compression, GathersAndScattersTheKeptCoordinatesOnly) {
  const auto mask = CoordinateMask::sparse(layout(), 0.4, generator(), 5);
  std::vector<float> a(40), b(14);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(100 + i);
  PerSampleGradients<float> gradients{2, {a, {}, b}};
  const Gathered<float> second(layout(), mask, gradients, 1, 2);
  EXPECT_EQ(second.gradients().records, 1u);
  GradientSum reduced(mask.reduced(layout()));
  for (const std::size_t i : {0, 2})
    for (std::size_t k = 0; k < reduced.tensor(i).size(); ++k)
      reduced.tensor(i)[k] = static_cast<double>(second.gradients().tensors[i][k]);
  GradientSum full(layout());
  scatter(mask, reduced, full);
  for (const std::size_t i : {0, 2})
    for (std::size_t k = 0; k < full.tensor(i).size(); ++k) {
      const bool kept = std::ranges::count(mask.kept(i), k) != 0;
      const float value = gradients.tensors[i][full.tensor(i).size() + k];
      EXPECT_EQ(full.tensor(i)[k], kept ? static_cast<double>(value) : 0.0);
    }
}

TEST(Compression, RefusesAShareOutsideItsRangeAndWrongSizes) {
  for (const double keep : {0.0, -1.0, 1.5, std::nan("")})
    EXPECT_THROW(CoordinateMask::sparse(layout(), keep, generator(), 0), Error);
  const PerSampleGradients<double> wrong{1, {{}, {}, {}}};
  EXPECT_THROW(Gathered<double>(layout(), CoordinateMask::all(layout()), wrong, 0, 1), Error);
}

}  // namespace
}  // namespace discreet::mechanism
