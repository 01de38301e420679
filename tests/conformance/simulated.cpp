#include "tests/conformance/simulated.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <string>

#include "discreet/random/discrete.h"
#include "discreet/random/gaussian.h"
#include "discreet/random/subsets.h"

namespace discreet::conformance {
namespace {

using random::Generator;
using random::Position;
using Tensors = std::span<std::vector<double>>;

double square(double x) { return x * x; }

// The loss of a step that happens with probability `rate` and then has the loss `ratio`.
double subsampled(double rate, double ratio) {
  return rate == 1 ? ratio : std::log1p(rate * std::expm1(ratio));
}

double log_sum_exp(std::span<const double> terms) {
  const double top = *std::max_element(terms.begin(), terms.end());
  double sum = 0;
  for (const double term : terms) sum += std::exp(term - top);
  return top + std::log(sum);
}

class PoissonCoins final : public Simulated {
 public:
  PoissonCoins(double rate, std::vector<double> contributions, std::vector<double> deviations,
               Adjacency adjacency)
      : rate_(rate),
        moves_(std::move(contributions)),
        deviations_(std::move(deviations)),
        without_(adjacency == Adjacency::kReplaceOne ? -1 : 0) {}
  std::size_t outputs() const override { return moves_.size(); }
  double deviation(std::size_t output) const override { return deviations_[output]; }
  void sums(World world, std::uint64_t step, const Generator& coins, Tensors sums) const override {
    for (auto& tensor : sums) std::fill(tensor.begin(), tensor.end(), 0);
    const double factor = world == World::kWith ? 1 : without_;
    for (const std::uint64_t record :
         random::poisson_subset(coins, Position::at(step, 0), {0, sums[0].size()}, rate_)) {
      for (std::size_t k = 0; k < moves_.size(); ++k) sums[k][record] += factor * moves_[k];
    }
  }
  double loss(std::span<const double> y) const override {
    double ratio = 0;
    for (std::size_t k = 0; k < y.size(); ++k) {
      ratio += (square(y[k] - without_ * moves_[k]) - square(y[k] - moves_[k])) /
               (2 * square(deviations_[k]));
    }
    return subsampled(rate_, ratio);
  }

 private:
  double rate_;
  std::vector<double> moves_, deviations_;
  double without_;
};

class FixedSizeBatch final : public Simulated {
 public:
  FixedSizeBatch(std::uint64_t batch, std::uint64_t population, double sigma, Adjacency adjacency)
      : batch_(batch), population_(population), sigma_(sigma), adjacency_(adjacency) {}
  double deviation(std::size_t) const override { return sigma_; }
  void sums(World world, std::uint64_t step, const Generator& coins, Tensors sums) const override {
    const bool absent = world == World::kWithout && adjacency_ == Adjacency::kAddRemove;
    for (std::size_t trial = 0; trial < sums[0].size(); ++trial) {
      double sum = 0;
      for (const std::uint64_t record : random::fixed_size_subset(
               coins, Position::at(step, trial), absent ? population_ - 1 : population_, batch_)) {
        sum += record == population_ - 1 && world == World::kWith ? 1 : -1;
      }
      sums[0][trial] = sum;
    }
  }
  double loss(std::span<const double> y) const override {
    const double centred = y[0] + static_cast<double>(batch_);
    const double rate = static_cast<double>(batch_) / static_cast<double>(population_);
    return subsampled(rate, 2 * (centred - 1) / square(sigma_));
  }

 private:
  std::uint64_t batch_, population_;
  double sigma_;
  Adjacency adjacency_;
};

double binomial(std::uint64_t n, std::uint64_t k, double p) {
  double mass = 1;
  for (std::uint64_t i = 0; i < k; ++i) {
    mass *= p * static_cast<double>(n - i) / static_cast<double>(k - i);
  }
  return mass * std::pow(1 - p, static_cast<double>(n - k));
}

class TruncatedCoins final : public Simulated {
 public:
  TruncatedCoins(double rate, std::uint64_t capacity, std::uint64_t population, double sigma,
                 int others)
      : rate_(rate), capacity_(capacity), population_(population), sigma_(sigma), others_(others) {
    const double b = static_cast<double>(capacity);
    for (std::uint64_t k = 0; k < population; ++k) {  // k of the others come
      const double mass = binomial(population - 1, k, rate), kd = static_cast<double>(k);
      const double in = k < capacity ? rate : rate * b / (kd + 1);
      const double alone = std::min(kd, b) * others;
      without_.push_back({std::log(mass), alone});
      with_.push_back({std::log(mass * (1 - in)), alone});
      with_.push_back({std::log(mass * in), std::min(kd, b - 1) * others + 1});
    }
  }
  double deviation(std::size_t) const override { return sigma_; }
  void sums(World world, std::uint64_t step, const Generator& coins, Tensors sums) const override {
    const std::uint64_t trials = sums[0].size();
    const auto came =
        random::poisson_subset(coins, Position::at(step, 0), {0, trials * population_}, rate_);
    auto next = came.begin();
    for (std::uint64_t trial = 0; trial < trials; ++trial) {
      std::vector<std::uint64_t> batch;
      for (; next != came.end() && *next < (trial + 1) * population_; ++next) {
        const std::uint64_t record = *next - trial * population_;
        if (record + 1 < population_ || world == World::kWith) batch.push_back(record);
      }
      std::vector<std::uint64_t> kept;
      if (batch.size() > capacity_) {
        for (const std::uint64_t i : random::fixed_size_subset(coins, Position::at(step, 1 + trial),
                                                               batch.size(), capacity_)) {
          kept.push_back(batch[i]);
        }
        batch = std::move(kept);
      }
      double sum = 0;
      for (const std::uint64_t record : batch) sum += record + 1 == population_ ? 1 : others_;
      sums[0][trial] = sum;
    }
  }
  double loss(std::span<const double> y) const override {
    return log_mixture(with_, y[0]) - log_mixture(without_, y[0]);
  }

 private:
  struct Part {
    double log_weight, mean;
  };
  double log_mixture(const std::vector<Part>& parts, double y) const {
    thread_local std::vector<double> terms;
    terms.clear();
    for (const Part& part : parts) {
      terms.push_back(part.log_weight - square(y - part.mean) / (2 * square(sigma_)));
    }
    return log_sum_exp(terms);
  }
  double rate_;
  std::uint64_t capacity_, population_;
  double sigma_;
  int others_;
  std::vector<Part> with_, without_;
};

class BallsAndBinsEpoch final : public Simulated {
 public:
  BallsAndBinsEpoch(std::uint32_t batches, double sigma) : batches_(batches), sigma_(sigma) {}
  std::size_t outputs() const override { return batches_; }
  double deviation(std::size_t) const override { return sigma_; }
  void sums(World world, std::uint64_t epoch, const Generator& coins, Tensors sums) const override {
    for (auto& batch : sums) std::fill(batch.begin(), batch.end(), 0);
    std::vector<std::uint32_t> bins(sums[0].size());
    random::assign_bins(coins, Position::at(epoch, 0), batches_, bins);
    if (world == World::kWithout) return;
    for (std::size_t record = 0; record < bins.size(); ++record) sums[bins[record]][record] += 1;
  }
  double loss(std::span<const double> y) const override {
    double sum = 0;
    for (const double value : y) sum += std::exp((value - 0.5) / square(sigma_));
    return std::log(sum / batches_);
  }

 private:
  std::uint32_t batches_;
  double sigma_;
};

class Shuffled final : public Simulated {
 public:
  Shuffled(std::uint64_t batches, std::uint64_t size, double sigma, Adjacency adjacency)
      : batches_(batches),
        size_(size),
        sigma_(sigma),
        without_(adjacency == Adjacency::kReplaceOne ? -1 : 0) {}
  std::size_t outputs() const override { return batches_; }
  double deviation(std::size_t) const override { return sigma_; }
  void sums(World world, std::uint64_t epoch, const Generator& coins, Tensors sums) const override {
    for (auto& batch : sums) std::fill(batch.begin(), batch.end(), 0);
    for (std::size_t trial = 0; trial < sums[0].size(); ++trial) {
      const auto order = random::permutation(coins, Position::at(epoch, trial), batches_ * size_);
      for (std::size_t i = 0; i < order.size(); ++i) {
        sums[i / size_][trial] += order[i] > 0 ? -1 : world == World::kWith ? 1 : without_;
      }
    }
  }
  double loss(std::span<const double> y) const override {
    return log_mean(y, 2) - log_mean(y, 1 + without_);
  }

 private:
  // The logarithm of the mean density if the record moves its batch by `move`, relative to batches
  // of -1 only.
  double log_mean(std::span<const double> y, double move) const {
    double sum = 0;
    for (const double value : y) {
      sum += std::exp(move * (value + static_cast<double>(size_) - move / 2) / square(sigma_));
    }
    return std::log(sum / static_cast<double>(batches_));
  }
  std::uint64_t batches_, size_;
  double sigma_, without_;
};

class RepeatedCoins final : public Simulated {
 public:
  explicit RepeatedCoins(std::unique_ptr<Simulated> inner) : inner_(std::move(inner)) {}
  std::size_t outputs() const override { return inner_->outputs(); }
  double deviation(std::size_t output) const override { return inner_->deviation(output); }
  void sums(World world, std::uint64_t, const Generator& coins, Tensors sums) const override {
    inner_->sums(world, 0, coins, sums);
  }
  double loss(std::span<const double> y) const override { return inner_->loss(y); }

 private:
  std::unique_ptr<Simulated> inner_;
};

void add_noise(Noise noise, const Generator& generator, const Position& position, double deviation,
               std::span<double> x) {
  if (noise == Noise::kGaussian) {
    random::add_gaussian(generator, position, deviation, x);
    return;
  }
  constexpr double kUnits = 16;
  std::vector<std::int64_t> units(x.size());
  random::rounded_gaussian(generator, position, random::Rational::at_least(kUnits * deviation),
                           units);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<double>(units[i]) / kUnits;
}

// Every world has streams of its own.
struct Streams {
  Streams(std::uint64_t seed, World world)
      : noise(Generator(random::Algorithm::kPhilox4x32, key(seed, world, random::stream::kNoise))),
        coins(Generator(random::Algorithm::kPhilox4x32,
                        key(seed, world, random::stream::kSampling))) {}
  Generator noise, coins;

 private:
  static random::Key key(std::uint64_t seed, World world, std::string_view stream) {
    return random::Key::from_seed(seed)
        .derive(world == World::kWith ? "falsifier/with" : "falsifier/without")
        .derive(stream);
  }
};

Losses in_both(std::uint64_t seed,
               const std::function<std::vector<double>(World, const Streams&)>& run) {
  auto without = std::async(std::launch::async,
                            [&] { return run(World::kWithout, Streams(seed, World::kWithout)); });
  std::vector<double> with = run(World::kWith, Streams(seed, World::kWith));
  return {std::move(with), without.get()};
}

}  // namespace

std::unique_ptr<Simulated> poisson(double rate, std::vector<double> contributions,
                                   std::vector<double> deviations, Adjacency adjacency) {
  return std::make_unique<PoissonCoins>(rate, std::move(contributions), std::move(deviations),
                                        adjacency);
}
std::unique_ptr<Simulated> fixed_size(std::uint64_t batch, std::uint64_t population, double sigma,
                                      Adjacency adjacency) {
  return std::make_unique<FixedSizeBatch>(batch, population, sigma, adjacency);
}
std::unique_ptr<Simulated> truncated_poisson(double rate, std::uint64_t capacity,
                                             std::uint64_t population, double sigma, int others) {
  return std::make_unique<TruncatedCoins>(rate, capacity, population, sigma, others);
}
std::unique_ptr<Simulated> balls_and_bins(std::uint32_t batches, double sigma) {
  return std::make_unique<BallsAndBinsEpoch>(batches, sigma);
}
std::unique_ptr<Simulated> shuffled_epoch(std::uint64_t batches, std::uint64_t batch_size,
                                          double sigma, Adjacency adjacency) {
  return std::make_unique<Shuffled>(batches, batch_size, sigma, adjacency);
}

std::unique_ptr<Simulated> with_repeated_coins(std::unique_ptr<Simulated> mechanism) {
  return std::make_unique<RepeatedCoins>(std::move(mechanism));
}

Losses simulate(const Simulated& mechanism, int steps, std::size_t trials, std::uint64_t seed,
                Noise noise) {
  return in_both(seed, [&](World world, const Streams& streams) {
    std::vector<double> losses(trials), one(mechanism.outputs());
    std::vector<std::vector<double>> outputs(mechanism.outputs(), std::vector<double>(trials));
    for (std::uint64_t step = 0; step < static_cast<std::uint64_t>(steps); ++step) {
      mechanism.sums(world, step, streams.coins, outputs);
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        add_noise(noise, streams.noise, Position::at(step, k), mechanism.deviation(k), outputs[k]);
      }
      for (std::size_t trial = 0; trial < trials; ++trial) {
        for (std::size_t k = 0; k < outputs.size(); ++k) one[k] = outputs[k][trial];
        losses[trial] += mechanism.loss(one);
      }
    }
    return losses;
  });
}

Losses simulate(const NoiseFamily& noise, double shift, double rate, Adjacency adjacency, int steps,
                std::size_t trials, std::uint64_t seed) {
  const double back = adjacency == Adjacency::kReplaceOne ? -shift : 0;
  return in_both(seed, [&](World world, const Streams& streams) {
    std::vector<double> losses(trials), y(trials);
    for (std::uint64_t step = 0; step < static_cast<std::uint64_t>(steps); ++step) {
      noise.fill(streams.noise, Position::at(step, 0), y);
      for (const std::uint64_t record :
           random::poisson_subset(streams.coins, Position::at(step, 0), {0, trials}, rate)) {
        y[record] += world == World::kWith ? shift : back;
      }
      for (std::size_t trial = 0; trial < trials; ++trial) {
        const double ratio =
            noise.log_density(y[trial] - shift) - noise.log_density(y[trial] - back);
        losses[trial] += subsampled(rate, ratio);
      }
    }
    return losses;
  });
}

}  // namespace discreet::conformance
