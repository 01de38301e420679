// Steps that are clipped elsewhere: take_norms and release_into.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

ModelLayout model() {
  return ModelLayout({{.name = "a.weight", .shape = {4, 3}},
                      {.name = "frozen.weight", .shape = {5}, .trainable = false},
                      {.name = "b.weight", .shape = {8}}});
}

Config base() {
  Config config = public_run(1000, 8);
  config.privacy.seed = 11;
  config.privacy.target_steps = 100;
  config.privacy.clip_norm = 2;
  return config;
}

Mechanism mechanism(const Config& config) { return mechanism_of(resolved(config), model()); }

constexpr std::size_t kRecords = 6;

// Gradients of kRecords records, some longer than the bound and some shorter.
struct Batch {
  Batch() {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    const ModelLayout layout = model();
    values.resize(layout.size());
    gradients.records = kRecords;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout.tensors()[i].is_private())
        for (std::size_t k = 0; k < kRecords * layout.elements(i); ++k)
          values[i].push_back(normal(random) * (k / layout.elements(i) % 2 == 0 ? 3 : 0.1));
      gradients.tensors.emplace_back(values[i]);
    }
  }
  std::vector<std::vector<double>> values;
  PerSampleGradients<double> gradients;

  RecordNorms norms(std::size_t begin, std::size_t end) const {
    RecordNorms out{end - begin, 1, {}, {}, {}};
    for (std::size_t r = begin; r < end; ++r) {
      double square = 0;
      for (const auto& tensor : values)
        for (std::size_t k = 0; k < tensor.size() / kRecords; ++k)
          square += std::pow(tensor[r * (tensor.size() / kRecords) + k], 2);
      out.norms.push_back(std::sqrt(square));
    }
    return out;
  }
};

// The clipped average, formed by the caller from the scales that the mechanism gives.
std::vector<std::vector<double>> averages(Mechanism& m, const Batch& batch) {
  std::vector<std::vector<double>> out;
  for (const auto& tensor : batch.values) out.emplace_back(tensor.size() / kRecords);
  for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 6)}) {
    RecordNorms norms = batch.norms(begin, end);
    m.take_norms(norms);
    for (std::size_t i = 0; i < out.size(); ++i)
      for (std::size_t r = 0; r < norms.records; ++r)
        for (std::size_t k = 0; k < out[i].size(); ++k)
          out[i][k] += norms.scales[r] * batch.values[i][(begin + r) * out[i].size() + k] / 8;
  }
  return out;
}

HeldGradients held(std::vector<std::vector<double>>& values) {
  return {{values.begin(), values.end()}, {}};
}

TEST(ApplyHeld, ReleasesWhatTheMechanismReleasesOfTheSameRecords) {
  Mechanism own = mechanism(base()), elsewhere = mechanism(base());
  const Batch batch;
  for (int step = 0; step < 3; ++step) {
    const Microbatch one = batch.gradients;
    const StepResult expected = own.apply(std::span(&one, 1));
    auto values = averages(elsewhere, batch);
    const StepResult result = elsewhere.release_into(held(values));
    for (const std::size_t i : {0, 2})
      for (std::size_t k = 0; k < values[i].size(); ++k)
        EXPECT_NEAR(values[i][k], expected.gradients.tensor(i)[k], 1e-14);
    EXPECT_EQ(result.budget.after.upper, expected.budget.after.upper);
    EXPECT_EQ(result.metrics.clip_fraction, expected.metrics.clip_fraction);
    EXPECT_EQ(result.metrics.clip_fraction, 0.5);
    EXPECT_NEAR(result.metrics.gradient_snr, expected.metrics.gradient_snr, 1e-12);
  }
  EXPECT_EQ(own.fingerprint(), elsewhere.fingerprint());
}

TEST(ApplyHeld, RoundsToBinary32OnceAfterTheNoise) {
  for (const double sigma : {0.0, 1.0}) {
    Config config = base();
    config.privacy.debug = sigma == 0;
    config.privacy.noise_multiplier = sigma;
    Mechanism wide = mechanism(config);
    config.run.compute_dtype = ComputeDtype::kFloat32;
    Mechanism narrow = mechanism(config);
    const Batch batch;
    auto expected = averages(wide, batch);
    wide.release_into(held(expected));
    auto values = averages(narrow, batch);
    std::vector<std::vector<float>> rounded;
    for (const auto& tensor : values) rounded.emplace_back(tensor.size());
    HeldGradients both = held(values);
    both.rounded = {rounded.begin(), rounded.end()};
    narrow.release_into(both);
    EXPECT_EQ(values, expected);
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t k = 0; k < values[i].size(); ++k)
        EXPECT_EQ(rounded[i][k], static_cast<float>(expected[i][k]));
    auto again = averages(narrow, batch);
    both = held(again);
    both.rounded.emplace_back();
    EXPECT_THROW(narrow.release_into(both), Error) << "other tensors";
  }
}

TEST(ApplyHeld, ZeroesOrRefusesNormsThatAreNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), -1.0}) {
    Mechanism strict = mechanism(base());
    const Bytes before = strict.save();
    RecordNorms norms{2, 1, {1, bad}, {}, {}};
    EXPECT_THROW(strict.take_norms(norms), Error);
    EXPECT_EQ(strict.save(), before);
    std::vector<std::vector<double>> values{std::vector<double>(12), {}, std::vector<double>(8)};
    EXPECT_THROW(strict.release_into(held(values)), Error) << "nothing was taken";

    Config config = base();
    config.privacy.nonfinite = NonfinitePolicy::kZero;
    Mechanism lenient = mechanism(config);
    norms = {2, 1, {1, bad}, {}, {}};
    lenient.take_norms(norms);
    EXPECT_EQ(norms.scales, (std::vector<double>{1, 0}));
    EXPECT_EQ(lenient.release_into(held(values)).metrics.zeroed_records, 1u);
  }
}

TEST(ApplyHeld, AutomaticScalesStayBelowTheBound) {
  Mechanism m = mechanism(base());
  RecordNorms norms{4, 1, {0, 1e-6, 1, 1e6}, {}, {}};
  m.take_norms(norms, 0.01);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_LE(norms.norms[r] * norms.scales[r], 2);
    EXPECT_NEAR(norms.scales[r], 2 / (norms.norms[r] + 0.01), 1e-12 * norms.scales[r]);
  }
  EXPECT_THROW(m.take_norms(norms, 0.0), Error);
}

TEST(ApplyHeld, RefusesWhatItCannotServeAndTooManyRecords) {
  RecordNorms norms{1, 1, {1}, {}, {}};
  Config discrete = base();
  discrete.privacy.noise_family = NoiseFamily::kRoundedGaussian;
  discrete.privacy.noise_discrete = 0x1p-10;
  Config compressed = base();
  compressed.privacy.compression = Compression::kSparseDp;
  compressed.privacy.compression_keep = 0.5;
  Config accumulated = base();
  accumulated.privacy.gradient_accumulation_steps = 2;
  for (const Config& config : {discrete, compressed, accumulated}) {
    Mechanism m = mechanism(config);
    EXPECT_THROW(m.take_norms(norms), Error);
  }
  Mechanism m = mechanism(base());
  RecordNorms many{m.most_records() + 1, 1, std::vector<double>(m.most_records() + 1, 1), {}, {}};
  EXPECT_THROW(m.take_norms(many), Error);
  m.take_norms(norms);
  std::vector<std::vector<double>> few{std::vector<double>(11), {}, std::vector<double>(8)};
  EXPECT_THROW(m.release_into(held(few)), Error);
  m.drop_microbatches();
  few[0].resize(12);
  EXPECT_THROW(m.release_into(held(few)), Error) << "what was taken is forgotten";
}

}  // namespace
}  // namespace discreet::mechanism
