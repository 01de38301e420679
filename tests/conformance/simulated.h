#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/random/generator.h"
#include "tests/conformance/falsifier.h"

// Mechanisms on tiny data sets, simulated with discreet/random: the coins of the real samplers, the
// real noise. Records are numbers in [-1, 1] (clip norm 1); one of them, +1, is the record in
// question. The others are chosen so that the pair is the worst one known.
namespace discreet::conformance {

using accounting::Adjacency;

enum class World { kWith, kWithout };

// A step (or an epoch, where that is the event) as many trials at once see it. The outputs of a
// step are tensors, element i of which belongs to trial i.
class Simulated {
 public:
  virtual ~Simulated() = default;
  // How many numbers a trial releases in a step, and the noise of each.
  virtual std::size_t outputs() const { return 1; }
  virtual double deviation(std::size_t output) const = 0;
  // sums[output][trial] before noise.
  virtual void sums(World world, std::uint64_t step, const random::Generator& coins,
                    std::span<std::vector<double>> sums) const = 0;
  // log(p_with / p_without) at one trial's outputs.
  virtual double loss(std::span<const double> outputs) const = 0;
};

// A Poisson subsample of which every trial watches a record of its own: `contributions` to tensors
// of noise `deviations`, of which {1}, {sigma} is the plain mechanism. Rate 1 is everyone, in every
// step. The other records are 0. Under replace_one, only with rate 1, the record becomes its
// negative.
std::unique_ptr<Simulated> poisson(double rate, std::vector<double> contributions,
                                   std::vector<double> deviations,
                                   Adjacency adjacency = Adjacency::kAddRemove);

// `batch` of `population` records; the others are -1. Without the record there are population - 1
// (add_remove), or it is -1 (replace_one).
std::unique_ptr<Simulated> fixed_size(std::uint64_t batch, std::uint64_t population, double sigma,
                                      Adjacency adjacency);

// A Poisson subsample of `population` records (one less without the record) cut to `capacity`; the
// others are `others`, 0 or -1.
std::unique_ptr<Simulated> truncated_poisson(double rate, std::uint64_t capacity,
                                             std::uint64_t population, double sigma, int others);

// An epoch in which every trial watches a record of its own; the other records are 0.
std::unique_ptr<Simulated> balls_and_bins(std::uint32_t batches, double sigma);

// An epoch over batches * batch_size records; the others are -1. The record is 0 without it
// (zero_out), or -1 (replace_one).
std::unique_ptr<Simulated> shuffled_epoch(std::uint64_t batches, std::uint64_t batch_size,
                                          double sigma, Adjacency adjacency);

// A defect: every step takes the coins of the first.
std::unique_ptr<Simulated> with_repeated_coins(std::unique_ptr<Simulated> mechanism);

// What is added: Gaussian noise, or a Gaussian rounded to multiples of 1/16.
enum class Noise { kGaussian, kRounded };

// Runs `steps` steps. The two worlds draw from independent streams.
Losses simulate(const Simulated& mechanism, int steps, std::size_t trials, std::uint64_t seed,
                Noise noise = Noise::kGaussian);

// A noise family on one number, which the record moves by `shift` with probability `rate`; under
// replace_one by +shift or -shift, with rate 1.
struct NoiseFamily {
  // Fills with noise.
  std::function<void(const random::Generator&, const random::Position&, std::span<double>)> fill;
  // log of the probability (or density) of a value.
  std::function<double(double)> log_density;
};

Losses simulate(const NoiseFamily& noise, double shift, double rate, Adjacency adjacency, int steps,
                std::size_t trials, std::uint64_t seed);

}  // namespace discreet::conformance
