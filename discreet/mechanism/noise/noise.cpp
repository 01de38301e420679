#include "discreet/mechanism/noise/noise.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/rounding.h"
#include "discreet/random/discrete.h"
#include "discreet/random/gaussian.h"
#include "discreet/random/laplace.h"
#include "discreet/random/skellam.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "GenerateNoise_v1";
// Values at a time: with the integers drawn for them they stay in the second cache, and are enough
// to make the expansion of a key cheap.
constexpr std::size_t kPiece = std::size_t{1} << 14;
static_assert(kPiece % numerics::kChunk == 0);
// The same where the values lie elsewhere: they stay in the first cache between their square and
// their noise.
constexpr std::size_t kTask = std::size_t{1} << 13;

std::uint64_t indices(NoiseFamily family, std::uint64_t n) {
  switch (family) {
    case NoiseFamily::kGaussian: return random::gaussian_indices(n);
    case NoiseFamily::kLaplace: return random::laplace_indices(n);
    case NoiseFamily::kDiscreteGaussian:
    case NoiseFamily::kRoundedGaussian:
    case NoiseFamily::kSkellam: return random::discrete_indices(n);
  }
  return 0;
}

void check(double stddev, std::string_view what) {
  if (!std::isfinite(stddev))
    fail(ErrorCode::kNanInSigma, kOperator, "the standard deviation of {} is {}; it must be finite",
         what, stddev);
  if (stddev < 0)
    invalid_config(kOperator, "the standard deviation of {} is {}; it must not be negative", what,
                   stddev);
}

void check(const Partition& partition, const NoiseRequest& request) {
  if (request.stddev.size() != partition.parts() ||
      request.scalar_stddev.size() != request.scalars.size())
    invalid_config(kOperator, "found {} standard deviations for {} parts, and {} for {} scalars",
                   request.stddev.size(), partition.parts(), request.scalar_stddev.size(),
                   request.scalars.size());
  for (std::size_t g = 0; g < partition.parts(); ++g) check(request.stddev[g], partition.names[g]);
  for (const double stddev : request.scalar_stddev) check(stddev, "a released scalar");
}

// A discrete family with its parameter, drawn exactly.
class Discrete {
 public:
  Discrete(NoiseFamily family, double stddev) : family_(family) {
    parameter_ = random::Rational::at_least(
        family == NoiseFamily::kRoundedGaussian ? stddev : numerics::next_up(stddev * stddev));
    if (family == NoiseFamily::kSkellam) parameter_ = rounded_up_to_24_bits(parameter_);
  }

  void add(const random::Generator& generator, const random::Position& position,
           std::span<double> values) const {
    std::vector<std::int64_t> drawn(values.size());
    draw(generator, position, drawn);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<double>(drawn[i]);
  }

 private:
  // skellam() takes numerators up to 2^24 and denominators up to 2^23.
  static random::Rational rounded_up_to_24_bits(random::Rational x) {
    while (x.numerator > (1u << 24) || x.denominator > (1u << 23)) {
      if (x.denominator == 1)
        invalid_config(kOperator,
                       "Skellam noise of variance {} in squared grid steps exceeds 2^24; use a "
                       "coarser noise.discrete or rounded_gaussian",
                       x.numerator);
      x.numerator = x.numerator / 2 + x.numerator % 2;
      x.denominator /= 2;
    }
    return x;
  }

  void draw(const random::Generator& generator, const random::Position& position,
            std::span<std::int64_t> out) const {
    if (family_ == NoiseFamily::kRoundedGaussian)
      random::rounded_gaussian(generator, position, parameter_, out);
    else if (family_ == NoiseFamily::kDiscreteGaussian)
      random::discrete_gaussian(generator, position, parameter_, out);
    else
      random::skellam(generator, position, parameter_, out);
  }

  NoiseFamily family_;
  random::Rational parameter_;
};

// An upper bound, formed in four quarters at once.
double square_of(std::span<const double> values) {
  const std::size_t n = values.size() / 4;
  const double* rows[5];
  for (std::size_t k = 0; k < 5; ++k) rows[k] = values.data() + k * n;
  double norms[5];
  kernels::norms_from_above(rows, 4, n, norms);
  kernels::norms_from_above(rows + 4, 1, values.size() % 4, norms + 4);
  double total = 0;
  for (const double norm : norms) total += norm * norm;
  return total;
}

// The noise of one tensor.
struct Stretch {
  std::size_t begin, end;  // its coordinates in the sum
  double stddev;
  random::Position position;  // of the first
};

// Adds the noise of the coordinates `begin` on that are of this tensor.
void add_to(std::size_t begin, std::span<double> piece, const Stretch& tensor, NoiseFamily family,
            const random::Generator& generator) {
  const std::size_t from = std::max(begin, tensor.begin);
  const std::size_t to = std::min(begin + piece.size(), tensor.end);
  if (from >= to || tensor.stddev == 0) return;
  const auto values = piece.subspan(from - begin, to - from);
  const auto position = tensor.position.from(tensor.position.coordinate + (from - tensor.begin));
  if (family == NoiseFamily::kGaussian) {
    random::add_gaussian(generator, position, tensor.stddev, values);
  } else if (family == NoiseFamily::kLaplace) {
    const double scale = numerics::next_up(tensor.stddev / std::numbers::sqrt2);
    random::add_laplace(generator, position, scale, values);
  } else {
    Discrete(family, tensor.stddev).add(generator, position, values);
  }
}

}  // namespace

void require_drawable(NoiseFamily family, std::span<const double> stddev) {
  if (!has_grid(family)) return;
  for (const double each : stddev)
    if (each != 0) static_cast<void>(Discrete(family, each));
}

std::uint64_t noise_indices(const ModelLayout& layout, NoiseFamily family, std::size_t scalars) {
  std::uint64_t total = random::gaussian_indices(scalars);
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (layout.tensors()[i].is_private()) total += indices(family, layout.elements(i));
  return total;
}

namespace {

// add: puts noise of a standard deviation on tensor i from a position on.
template <class Add>
NoiseState generate(const ModelLayout& layout, const Partition& partition,
                    const NoiseRequest& request, const random::Generator& generator,
                    const NoiseState& state, Add add) {
  check(partition, request);
  require_drawable(request.family, request.stddev);

  random::SequentialCounter counter(state.offset);
  if (!request.seed_per_step)
    counter.declare(noise_indices(layout, request.family, request.scalars.size()));
  const auto position = [&](std::size_t tensor, std::uint64_t count) {
    return request.seed_per_step ? random::Position::at(request.step, tensor) : counter.take(count);
  };
  if (request.seed_per_step) random::Position::at(request.step, layout.size());  // checks the range

  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const auto at = position(i, indices(request.family, layout.elements(i)));
    add(i, request.stddev[partition.part_of[i]], at);
  }
  if (!request.scalars.empty()) {
    // The scalars are one more tensor, after the last.
    const auto at = position(layout.size(), random::gaussian_indices(request.scalars.size()));
    for (std::size_t k = 0; k < request.scalars.size(); ++k)
      random::add_gaussian(generator, at.from(k), request.scalar_stddev[k],
                           request.scalars.subspan(k, 1));
  }
  if (!request.seed_per_step) counter.settle();
  return {request.seed_per_step ? 0 : counter.offset()};
}

}  // namespace

NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, std::span<const std::span<double>> values) {
  if (request.family != NoiseFamily::kGaussian)
    invalid_config(kOperator,
                   "noise on values stored elsewhere must be gaussian; set noise.family: gaussian");
  // The value of a coordinate depends on its position only, so a range may be cut anywhere.
  struct Task {
    random::Position at;
    double stddev;
    std::span<double> values;
    float* rounded;
    double square = 0;
  };
  std::vector<Task> tasks;
  const NoiseState after = generate(
      layout, partition, request, generator, state,
      [&](std::size_t i, double stddev, const random::Position& at) {
        for (std::size_t begin = 0; begin < values[i].size(); begin += kTask)
          tasks.push_back({at.from(at.coordinate + begin), stddev,
                           values[i].subspan(begin, std::min(kTask, values[i].size() - begin)),
                           request.rounded.empty() ? nullptr : request.rounded[i].data() + begin});
      });
  const auto run = [&](std::size_t k) {
    Task& task = tasks[k];
    if (request.square != nullptr) task.square = square_of(task.values);
    random::add_gaussian(generator, task.at, task.stddev, task.values);
    if (task.rounded != nullptr)
      std::ranges::transform(task.values, task.rounded,
                             [](double v) { return static_cast<float>(v); });
  };
  if (request.team != nullptr)
    (*request.team)(tasks.size(), run);
  else
    numerics::parallel_for(tasks.size(), request.threads, [&](std::size_t begin, std::size_t end) {
      for (; begin < end; ++begin) run(begin);
    });
  if (request.square != nullptr) {
    *request.square = 0;
    for (const Task& task : tasks) *request.square += task.square;
  }
  return after;
}

NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, GradientSum& values) {
  std::vector<Stretch> tensors;
  std::size_t begin = 0;
  const NoiseState after = generate(layout, partition, request, generator, state,
                                    [&](std::size_t i, double stddev, const random::Position& at) {
                                      const std::size_t end = begin + layout.elements(i);
                                      tensors.push_back({begin, end, stddev, at});
                                      begin = end;
                                    });
  const std::size_t count = values.values().size();
  const auto add = [&](std::size_t first, std::size_t last) {
    auto tensor = std::ranges::upper_bound(tensors, first, {}, &Stretch::end);
    for (; first < last; first += kPiece) {
      const auto piece = values.values().subspan(first, std::min(kPiece, last - first));
      if (request.before) request.before(first, piece);
      for (; tensor != tensors.end(); ++tensor) {
        add_to(first, piece, *tensor, request.family, generator);
        if (tensor->end > first + piece.size()) break;  // continues in the next piece
      }
      if (request.after) request.after(first, piece);
    }
  };
  // Threads take pieces in order; the thread that finishes `meanwhile` takes what is left.
  const std::size_t unit = has_grid(request.family) ? numerics::kChunk : kPiece;
  const std::size_t units = (count + unit - 1) / unit;
  std::atomic<std::size_t> next = 0;
  const auto most = static_cast<std::size_t>(std::max(1, request.threads));
  numerics::parallel_items(std::clamp<std::size_t>(units, 1, most), request.threads,
                           [&](std::size_t first, std::size_t) {
                             if (first == 0 && request.meanwhile) request.meanwhile();
                             for (std::size_t k; (k = next++) < units;)
                               add(k * unit, std::min(count, (k + 1) * unit));
                           });
  return after;
}

}  // namespace discreet::mechanism
