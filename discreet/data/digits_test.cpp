#include "discreet/data/digits.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace discreet::data {
namespace {

TEST(Digits, AreThoseOfTheRepositoryInAFixedSplit) {
  const Digits digits = read_digits();
  EXPECT_EQ(digits.train.rows, 1437u);
  EXPECT_EQ(digits.test.rows, 360u);
  for (const Dataset* part : {&digits.train, &digits.test}) {
    EXPECT_EQ(part->features, 64u);
    EXPECT_EQ(part->height, 8u);
    EXPECT_EQ(part->width, 8u);
    EXPECT_EQ(part->classes, 10u);
    EXPECT_EQ(part->x.size(), part->rows * 64);
    EXPECT_EQ(part->label.size(), part->rows);
    EXPECT_EQ(*std::min_element(part->x.begin(), part->x.end()), 0.0f);
    EXPECT_EQ(*std::max_element(part->x.begin(), part->x.end()), 1.0f);
  }
  // The first image is a zero that begins 0, 0, 5, 13; sums and counts by an independent reader
  // (Python's gzip and csv).
  EXPECT_EQ(digits.train.x[2], 5 / 16.0f);
  EXPECT_EQ(digits.train.x[3], 13 / 16.0f);
  EXPECT_EQ(digits.train.label[0], 0u);
  // The file begins with 0 to 9 in order: 1 and 6 test.
  EXPECT_EQ(digits.test.label[0], 1u);
  EXPECT_EQ(digits.test.label[1], 6u);
  EXPECT_EQ(digits.train.label[1], 2u);
  double ink = 0;
  for (const Dataset* part : {&digits.train, &digits.test})
    for (const float x : part->x) ink += 16 * x;
  EXPECT_EQ(ink, 561718);
  EXPECT_EQ(std::count(digits.train.label.begin(), digits.train.label.end(), 8u) +
                std::count(digits.test.label.begin(), digits.test.label.end(), 8u),
            174);
  EXPECT_NE(digits.train.digest, digits.test.digest);
  EXPECT_EQ(digits.train.digest, read_digits().train.digest);
}

}  // namespace
}  // namespace discreet::data
