#include "discreet/data/private_bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/accounting/pld.h"
#include "discreet/config/config_resolve.h"
#include "discreet/data/files_testing.h"

namespace discreet::data {
namespace {

using accounting::Adjacency;

random::Generator stream(std::uint64_t seed) {
  return {random::Algorithm::kPhilox4x32, random::Key::from_seed(seed).derive("private_bounds")};
}

TEST(PrivateBounds, BucketsAreOrderedAndHoldTheirNumbers) {
  EXPECT_EQ(kBoundsBuckets, 181u);
  const double ascending[] = {-1e300, -0x1p60, -0x1p59, -3, -2,   -1.5, -1,   -1e-3,  -1e-12,
                              0,      1e-12,   1e-3,    1,  1.99, 2,    1e17, 0x1p60, 1e300};
  std::size_t before = 0;
  for (const double value : ascending) {
    const std::size_t bucket = bounds_bucket(value);
    EXPECT_GE(bucket, before) << value;
    EXPECT_LT(bucket, kBoundsBuckets) << value;
    before = bucket;
  }
  EXPECT_EQ(bounds_bucket(0), 90u);
  EXPECT_EQ(bounds_bucket(1e-12), 90u);
  EXPECT_EQ(bounds_bucket(1), bounds_bucket(1.99));
  EXPECT_NE(bounds_bucket(1.99), bounds_bucket(2));
  EXPECT_EQ(bounds_bucket(-1e300), 0u);
  EXPECT_EQ(bounds_bucket(1e300), 180u);
}

PrivateBounds released(const std::vector<double>& values, double noise, std::uint64_t seed) {
  std::vector<double> counts(kBoundsBuckets);
  for (const double value : values) ++counts[bounds_bucket(value)];
  return release_bounds({"v"}, {counts}, noise, Adjacency::kAddRemove, stream(seed));
}

TEST(PrivateBounds, AreTheEdgesAroundTheCentralMass) {
  const std::vector<double> ages(5000, 40);  // one bucket, [32, 64)
  const NumericColumn bounds = released(ages, 10, 1).bounds.at("v");
  EXPECT_EQ(bounds.lower, 32);
  EXPECT_EQ(bounds.upper, 64);
  std::vector<double> zeros(5000, 0.0);
  EXPECT_EQ(released(zeros, 10, 2).bounds.at("v").upper, 0x1p-30);
  zeros.insert(zeros.end(), 5000, -100.0);
  EXPECT_EQ(released(zeros, 10, 3).bounds.at("v").lower, -128);
  // A single record far away is neither kept nor seen.
  std::vector<double> outlier = ages;
  outlier.push_back(1e15);
  EXPECT_EQ(released(outlier, 10, 1).bounds.at("v").upper, 64);
}

// 200 releases of a skewed column of 10,000 records: the bounds hold at least 98 % of them each
// time. An empty bucket passes the threshold with probability 3.4e-6 and would only widen them; a
// tail is lost if several counts are far off: the false-alarm rate is below 1e-9.
TEST(PrivateBounds, HoldNearlyAllRecordsOfASkewedColumn) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> incomes(10, 1);
  std::vector<double> values(10000);
  for (double& value : values) value = incomes(random);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const NumericColumn bounds = released(values, 5, seed).bounds.at("v");
    const auto inside = std::count_if(values.begin(), values.end(), [&](double v) {
      return v >= bounds.lower && v <= bounds.upper;
    });
    EXPECT_GE(inside, 9800) << seed;
  }
}

TEST(PrivateBounds, SayThatNothingStandsOutOfTheNoise) {
  try {
    released({1, 2, 3}, 10, 1);
    ADD_FAILURE() << "released";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    EXPECT_NE(error.sentence().find("declare data.numeric.v"), std::string::npos);
    EXPECT_NE(error.sentence().find("is spent"), std::string::npos);
  }
}

// The deviation, seen through the threshold: with counts of exactly t in every bucket of every
// column a bucket survives with probability 1 - Phi(4.5 - t / s); at t = 4.5 s that is 1/2. With
// k = 4 columns s = 2 sigma. 181 x 4 x 20 coins: 0.5 +- 0.0042; 6 deviations are 0.025.
TEST(PrivateBounds, NoiseGrowsWithTheRootOfTheNumberOfColumns) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  const double sigma = 10, deviation = 20;
  std::size_t outermost = 0;
  constexpr int kRuns = 4000;
  for (int seed = 0; seed < kRuns; ++seed) {
    // A large count in the middle, and one at the threshold in the outermost bucket, which is kept
    // if it passes: it is more than 0.5 % of the whole.
    std::vector<double> counts(kBoundsBuckets);
    counts[90] = 4000;
    counts[180] = 4.5 * deviation;
    const auto bounds = release_bounds(names, {counts, counts, counts, counts}, sigma,
                                       Adjacency::kAddRemove, stream(1000 + seed))
                            .bounds;
    for (const auto& [name, column] : bounds) outermost += column.upper == 0x1p60 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(outermost) / (4 * kRuns), 0.5, 6 * 0.5 / std::sqrt(4.0 * kRuns));
}

TEST(PrivateBounds, ReadOneRowAtATimeAndCountOnlyWholeRows) {
  const Folder folder;
  std::string text = "a,b,c\n";
  for (int i = 0; i < 3000; ++i) text += "10,x,-3\n";
  text += "bad,x,-3\n";
  write_gzip(folder / "d.csv", text);
  const auto read = [&](BadRow on_bad_row, const std::vector<std::string>& columns) {
    return release_csv_bounds(CsvRows(folder / "d.csv", CsvFormat{}), columns, 10,
                              Adjacency::kZeroOut, stream(1), on_bad_row);
  };
  const PrivateBounds bounds = read(BadRow::kSkip, {"a", "c"});
  EXPECT_EQ(bounds.bounds.at("a").lower, 8);
  EXPECT_EQ(bounds.bounds.at("a").upper, 16);
  EXPECT_EQ(bounds.bounds.at("c").lower, -4);
  EXPECT_EQ(bounds.bounds.at("c").upper, -2);
  const auto sentence = [&](const std::vector<std::string>& columns) -> std::string {
    try {
      read(BadRow::kRefuse, columns);
    } catch (const Error& error) {
      return error.sentence();
    }
    return "read";
  };
  EXPECT_NE(sentence({"a"}).find("d.csv:3002: column a: 'bad' is not a finite number"),
            std::string::npos);
  EXPECT_NE(sentence({"q"}).find("has no column q"), std::string::npos);
}

// As many missing numbers as others: where they counted, the bucket of zero would hold the middle.
TEST(PrivateBounds, AMissingNumberCountsInNoBucket) {
  const Folder folder;
  std::string text = "a,b\n";
  for (int i = 0; i < 3000; ++i) text += i % 2 == 0 ? " ?,-3\n" : " 10,?\n";
  write_text(folder / "d.csv", text);
  CsvFormat format;
  format.trim = true;
  format.missing = {"?"};
  const PrivateBounds bounds = release_csv_bounds(CsvRows(folder / "d.csv", format), {"a", "b"}, 10,
                                                  Adjacency::kZeroOut, stream(1));
  EXPECT_EQ(bounds.bounds.at("a").lower, 8);
  EXPECT_EQ(bounds.bounds.at("a").upper, 16);
  EXPECT_EQ(bounds.bounds.at("b").lower, -4);
  EXPECT_EQ(bounds.bounds.at("b").upper, -2);
  EXPECT_EQ(bounds.release.coordinates, 2 * kBoundsBuckets);
}

TEST(PrivateBounds, AreAnEventOfTheirOwnInTheBudgetOfTheRun) {
  const PrivateBounds bounds = released(std::vector<double>(5000, 1.0), 10, 1);
  EXPECT_EQ(bounds.release.coordinates, 181u);
  Config config;
  config.privacy.secure = false;
  config.privacy.declared_size = 5000;
  config.privacy.effective_batch_size = 100;
  config.privacy.target_epsilon = 3;
  config.privacy.target_steps = 10;
  config.privacy = resolve(config.privacy).config;
  const mechanism::Mechanism m(
      config, ModelLayout({{.name = "w", .shape = {2}}}),
      mechanism::mechanism_streams(config.privacy, random::Key::from_seed(1)), Digest{}, 1, 1,
      {bounds.release});
  accounting::PldAccountant pld(Adjacency::kAddRemove);
  pld.add(
      accounting::Event(accounting::Gaussian{10}, accounting::NoSampling{}, Adjacency::kAddRemove));
  EXPECT_NEAR(m.spent().epsilon.upper, pld.epsilon(1e-5).value.upper, 1e-6);
  EXPECT_GT(m.spent().epsilon.upper, 0.3);
}

TEST(PrivateBounds, HaveAStreamOfTheirOwn) {
  DpConfig config;
  const random::Key master = random::Key::from_seed(5);
  EXPECT_TRUE(private_bounds_stream(config, master).is_secure());
  config.secure = false;
  EXPECT_FALSE(private_bounds_stream(config, master).is_secure());
}

}  // namespace
}  // namespace discreet::data
