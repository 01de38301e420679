#include "discreet/mechanism/clip/ghost/record_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Squares [parts, records] over many magnitudes.
std::vector<double> squares_of(std::size_t parts, std::size_t records) {
  std::vector<double> out;
  for (std::size_t k = 0; k < parts * records; ++k)
    out.push_back(
        std::ldexp(1 + 0.37 * static_cast<double>(k % 11), static_cast<int>(k % 41) - 20));
  return out;
}

TEST(RecordWeights, NormsAreAboveTheRootsAndTransposed) {
  const auto squares = squares_of(3, 14);
  std::vector<double> norms(squares.size());
  norms_from_squares(squares, 3, 5, norms);
  for (std::size_t i = 0; i < 14; ++i)
    for (std::size_t g = 0; g < 3; ++g) {
      const long double exact = 5 * std::sqrt(static_cast<long double>(squares[g * 14 + i]));
      EXPECT_GT(norms[i * 3 + g], exact);
      EXPECT_LT(norms[i * 3 + g], exact * (1 + 0x1p-40L));
    }
}

TEST(RecordWeights, ALayerClippedAtOnceHasTheWeightsOfTheWholeStep) {
  const auto squares = squares_of(1, 60);
  for (const bool wide : {false, true}) {
    std::vector<double> at_once(60), together(60);
    clipped_weights(squares, 0.8, 60, 60. / 64, wide, at_once);
    RecordNorms norms{60, 1, std::vector<double>(60), {}, std::vector<std::uint8_t>(60)};
    norms_from_squares(squares, 1, 60, norms.norms);
    decide_scales({{{"all"}, {0}, {1}}, {0.8}, {}}, norms);
    weights_from_scales(norms.norms, norms.scales, 1, 60. / 64, wide, together);
    EXPECT_EQ(at_once, together);
  }
}

TEST(RecordWeights, WhatIsWeightedStaysBelowTheBoundAlsoInBinary32) {
  const auto squares = squares_of(1, 60);
  std::vector<double> weights(60);
  clipped_weights(squares, 0.8, 1, 1, false, weights);
  for (std::size_t i = 0; i < 60; ++i) {
    const auto up = std::nextafter(static_cast<float>(weights[i]), 2.f);
    EXPECT_LE(up * std::sqrt(static_cast<long double>(squares[i])), 0.8L);
    EXPECT_GT(weights[i], 0);
  }
}

TEST(RecordWeights, ARecordThatIsNotFiniteOrVanishesHasWeightZero) {
  std::vector<double> weights(4);
  clipped_weights(std::vector<double>{kInf, std::nan(""), 1e60, 0}, 1, 1, 1, false, weights);
  EXPECT_EQ(weights[0], 0);
  EXPECT_EQ(weights[1], 0);
  EXPECT_EQ(weights[2], 0) << "a weight of 1e-30 would leave few bits";
  EXPECT_EQ(weights[3], 1 - 0x1p-22);
  std::vector<double> both(2);
  weights_from_scales(std::vector<double>{1, kInf}, std::vector<double>{1, 1}, 2, 1, true, both);
  EXPECT_EQ(both, (std::vector<double>{0, 0})) << "a record is left out as a whole";
}

}  // namespace
}  // namespace discreet::mechanism
