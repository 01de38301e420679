#include "discreet/training/network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/base/error.h"
#include "discreet/data/matrix.h"
#include "discreet/mechanism/clip/ghost/ghost.h"

namespace discreet::training {
namespace {

std::vector<float> random_numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& v : out) v = normal(random);
  return out;
}

// The sum of the records' gradients, from the passes, with a bound that clips nothing.
GradientSum gradient(const Network& network, const BackwardResult& result) {
  GradientSum sum(network.layout());
  mechanism::ClipOptions options;
  options.binary32_records = 0;
  mechanism::ghost_clip(network.layout(), result.pass,
                        {partition(network.layout(), Cut::kFlat), {1e30}, std::nullopt}, options,
                        sum);
  return sum;
}

double total(const std::vector<float>& losses) {
  double sum = 0;
  for (const float loss : losses) sum += loss;
  return sum;
}

void expect_gradient(NetworkShape shape) {
  Network network(shape, random::Key::from_seed(3));
  constexpr std::size_t kRecords = 5;
  const std::vector<float> x = random_numbers(kRecords * shape.sizes[0], 1);
  const std::vector<float> targets = random_numbers(kRecords, 2);
  std::vector<std::uint32_t> labels;
  for (std::size_t i = 0; i < kRecords && shape.classifies; ++i)
    labels.push_back(static_cast<std::uint32_t>(i % shape.sizes.back()));
  const auto loss = [&] { return total(network.backward(x, labels, targets).losses); };
  const BackwardResult result = network.backward(x, labels, targets);
  const GradientSum sum = gradient(network, result);
  for (std::size_t i = 0; i < network.layout().size(); ++i)
    for (std::size_t k = 0; k < network.tensor(i).size(); k += 3) {
      float& w = network.tensor(i)[k];
      const float kept = w;
      constexpr float kStep = 1e-2f;
      w = kept + kStep;
      const double up = loss();
      w = kept - kStep;
      const double down = loss();
      w = kept;
      EXPECT_NEAR(sum.tensor(i)[k], (up - down) / (2.0 * kStep), 2e-2) << i << " " << k;
    }
}

TEST(Network, TakesOverTheMemoryOfAnEarlierMicrobatchOfAnySize) {
  const Network network({{7, 6, 5, 3}}, random::Key::from_seed(4));
  BackwardResult used;
  for (const std::size_t records : {40u, 3u, 90u, 0u, 41u}) {
    std::vector<float> x(records * 7);
    std::vector<std::uint32_t> labels(records);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k * 37 % 101) / 50 - 1;
    for (std::size_t i = 0; i < records; ++i) labels[i] = static_cast<std::uint32_t>(i % 3);
    const BackwardResult fresh = network.backward(x, labels, {});
    used = network.backward(x, labels, {}, 1, std::move(used));
    EXPECT_EQ(used.losses, fresh.losses);
    EXPECT_EQ(used.correct, fresh.correct);
    EXPECT_EQ(network.losses(x, labels, {}).losses, fresh.losses);
    EXPECT_EQ(network.losses(x, labels, {}).correct, fresh.correct);
    EXPECT_EQ(used.activations, fresh.activations);
    EXPECT_EQ(used.output_gradients, fresh.output_gradients);
    ASSERT_EQ(used.pass.layers.size(), 3u);
    for (std::size_t l = 0; l < 3; ++l)
      EXPECT_EQ(std::get<DensePass<float>>(used.pass.layers[l]).activations.data(),
                used.activations[l].data());
  }
}

TEST(Network, PassesGiveTheGradientOfTheLoss) {
  expect_gradient({{4, 3}, Activation::kTanh, true});
  expect_gradient({{4, 6, 5, 3}, Activation::kTanh, true});
  expect_gradient({{3, 7, 1}, Activation::kTanh, false});
}

TEST(Network, ReluPassesWhatIsPositive) {
  Network network({{1, 2, 2}, Activation::kRelu, true}, random::Key::from_seed(1));
  const std::vector<float> first = {1, -1}, second = {1, 2, 3, 4};
  std::ranges::copy(first, network.tensor(0).begin());
  std::ranges::copy(second, network.tensor(2).begin());
  // Input 3: hidden (3, 0), outputs (3, 9).
  EXPECT_EQ(network.predict(std::vector<float>{3}, 1), (std::vector<float>{3, 9}));
}

TEST(Network, HasTheSameBitsForAnyNumberOfThreads) {
  const Network network({{40, 70, 10}, Activation::kRelu, true}, random::Key::from_seed(1));
  const std::vector<float> x = random_numbers(8000, 5);
  std::vector<std::uint32_t> labels(200);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint32_t>(i % 10);
  const BackwardResult one = network.backward(x, labels, {}, 1);
  for (const int threads : {2, 3, 8}) {
    const BackwardResult more = network.backward(x, labels, {}, threads);
    EXPECT_EQ(one.losses, more.losses);
    EXPECT_EQ(one.output_gradients, more.output_gradients);
  }
}

TEST(Network, BeginsTheSameForTheSameSeedAndNowhereElse) {
  const NetworkShape shape{{5, 4, 3}, Activation::kRelu, true};
  const Network a(shape, random::Key::from_seed(1)), b(shape, random::Key::from_seed(1)),
      c(shape, random::Key::from_seed(2));
  EXPECT_TRUE(std::ranges::equal(a.tensor(0), b.tensor(0)));
  EXPECT_FALSE(std::ranges::equal(a.tensor(0), c.tensor(0)));
  for (const float w : a.tensor(0)) EXPECT_LE(std::fabs(w), std::sqrt(6.0f / 5));
  for (const float w : a.tensor(1)) EXPECT_EQ(w, 0);
}

TEST(Network, LossStaysFiniteForHugeOutputs) {
  Network network({{1, 2}, Activation::kRelu, true}, random::Key::from_seed(1));
  network.tensor(0)[0] = 3e38f;
  network.tensor(0)[1] = -3e38f;
  const std::vector<std::uint32_t> right = {0}, wrong = {1};
  EXPECT_EQ(network.backward({1}, right, {}).losses[0], 0);
  EXPECT_EQ(network.backward({1}, right, {}).correct, 1u);
  EXPECT_GT(network.backward({1}, wrong, {}).losses[0], 1e38f);
}

TEST(Network, RefusesShapesAndRecordsThatDoNotFit) {
  const random::Key key = random::Key::from_seed(1);
  for (const NetworkShape& bad : {NetworkShape{{3}, Activation::kRelu, true},
                                  NetworkShape{{3, 0, 2}, Activation::kRelu, true},
                                  NetworkShape{{3, 1}, Activation::kRelu, true},
                                  NetworkShape{{3, 2}, Activation::kRelu, false}})
    EXPECT_THROW(Network(bad, key), Error);
  const Network network({{3, 2}, Activation::kRelu, true}, key);
  const std::vector<std::uint32_t> labels = {0, 5};
  EXPECT_THROW(network.backward(std::vector<float>(6), labels, {}), Error);
  EXPECT_THROW(network.backward(std::vector<float>(5), std::vector<std::uint32_t>{0, 1}, {}),
               Error);
  EXPECT_THROW(network.predict(std::vector<float>(5), 2), Error);
  EXPECT_TRUE(network.backward({}, {}, {}).losses.empty());
}

TEST(Matrix, MultipliesAsTheDefinitionSays) {
  constexpr std::size_t m = 130, n = 7, k = 9;
  const std::vector<float> a = random_numbers(m * k, 1), b = random_numbers(k * n, 2);
  std::vector<float> transposed(n * k), c(m * n), d(m * n);
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = 0; j < n; ++j) transposed[j * k + i] = b[i * n + j];
  data::multiply(a, b, c, m, n, k, 3);
  data::multiply_transposed(a, transposed, d, m, n, k, 2);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double exact = 0;
      for (std::size_t l = 0; l < k; ++l) exact += static_cast<double>(a[i * k + l]) * b[l * n + j];
      EXPECT_NEAR(c[i * n + j], exact, 1e-5);
      EXPECT_NEAR(d[i * n + j], exact, 1e-5);
    }
  EXPECT_FALSE(data::blas_core().empty());
  EXPECT_THROW(data::multiply(a, b, std::span(c).first(1), m, n, k, 1), Error);
}

}  // namespace
}  // namespace discreet::training
