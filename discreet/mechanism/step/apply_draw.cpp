// Steps 8, 9b, 13 and 14 of Apply_v3: the noisy average of a sum.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "discreet/config/config_table.h"
#include "discreet/mechanism/clip/finite_impl.h"
#include "discreet/mechanism/step/apply_step_impl.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

namespace discreet::mechanism {
namespace {

using numerics::next_up;
using Fixed = Mechanism::Fixed;
using State = Mechanism::State;

constexpr const char* kOperator = "Apply_v3";

// To the nearest numbers of the type, ties to even.
void to_dtype(std::span<double> values, ComputeDtype dtype) {
  if (dtype == ComputeDtype::kFloat32)
    for (double& v : values) v = static_cast<float>(v);
  if (dtype == ComputeDtype::kBfloat16)
    for (double& v : values) {
      const auto narrow = static_cast<float>(v);
      std::uint32_t bits = std::bit_cast<std::uint32_t>(narrow);
      bits += 0x7fff + (bits >> 16 & 1);
      v = std::isfinite(narrow) ? std::bit_cast<float>(bits & 0xffff0000u) : narrow;
    }
}

// out = x / divisor. By a power of two, as batches often are, the product has the same bits and
// takes a fifth of the time.
void divide(std::span<const double> x, double divisor, std::span<double> out) {
  int exponent = 0;
  if (std::frexp(divisor, &exponent) == 0.5) {
    const double inverse = 1 / divisor;
    for (std::size_t k = 0; k < x.size(); ++k) out[k] = x[k] * inverse;
  } else {
    for (std::size_t k = 0; k < x.size(); ++k) out[k] = x[k] / divisor;
  }
}

// Draws the noise of a step: `add` does it for one of its slots.
template <class Add>
void draw_noise(const Fixed& fixed, const State& state, const Decided& decided, Drawn& out,
                Add add) {
  const DpConfig& dp = fixed.dp();
  const Partition& parts = state.now.allocation.plan.partition;
  NoiseScales scales = noise_scales(fixed, state.now.allocation, decided.sigma);
  out.stddev = std::move(scales.average);
  if (const auto counts = fixed.counts(parts.parts())) out.normals.assign(counts->counts, 0);
  const std::vector<double> ones(out.normals.size(), 1);
  NoiseRequest request;
  request.seed_per_step = dp.noise_seed_per_step;
  request.family = dp.noise_family;
  request.stddev = scales.drawn;
  request.scalars = out.normals;
  request.scalar_stddev = ones;
  request.threads = fixed.threads;
  const std::uint64_t slots = fixed.noise_slots();
  const random::Generator& generator = state.stream ? *state.stream : fixed.streams.noise;
  generator.require_own_process();  // before other threads are asked, which a forked process lacks
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    request.step = state.t * slots + slot;
    out.noise = add(request, generator, slot == 0, slot + 1 == slots);
  }
}

// Values and noise of such size cannot overflow binary32: no need to look at each.
bool is_far_from_overflow(const Drawn& drawn) {
  return drawn.signal < 1e30 &&
         std::ranges::all_of(drawn.stddev, [](double s) { return s < 1e30; });
}

template <class TensorOf>
[[noreturn]] void refuse_infinite(const Fixed& fixed, const State& state, TensorOf tensor_of) {
  for (std::size_t i = 0; i < state.now.layout.size(); ++i)
    if (!all_finite(tensor_of(i)))
      invalid_gradient(
          kOperator, "the noisy gradient of {} is not finite in {}; nothing was released",
          state.now.layout.tensors()[i].name, spelling(fixed.config.run.compute_dtype));
  invalid_gradient(kOperator, "the noisy gradient changed while it was being read");
}

}  // namespace

NoiseScales noise_scales(const Fixed& fixed, const Allocation& allocation, double sigma) {
  const accounting::GaussianGroups groups = gaussian_groups(allocation, sigma);
  NoiseScales out;
  for (std::size_t g = 0; g < groups.groups.size(); ++g) {
    const double on_sum = next_up(groups.groups[g].noise_multiplier * allocation.plan.clip[g]);
    out.average.push_back(next_up(on_sum / fixed.batch));
    out.drawn.push_back(fixed.has_grid() ? next_up(on_sum / *fixed.dp().noise_discrete)
                                         : out.average.back());
  }
  // Several slots have equal shares of the variance. Their sum has all of it, and slightly more by
  // rounding.
  const std::uint64_t slots = fixed.noise_slots();
  if (slots == 1) return out;
  const double root = numerics::next_down(std::sqrt(static_cast<double>(slots)));
  for (double& stddev : out.drawn) stddev = next_up(stddev / root);
  return out;
}

Drawn draw(const Fixed& fixed, const State& state, const GradientSum& sum, GradientSum& values,
           const Decided& decided, const std::function<void()>& account) {
  const DpConfig& dp = fixed.dp();
  const Partition& parts = state.now.allocation.plan.partition;
  Drawn out{std::vector<double>(parts.parts()), {}, 0, state.noise};
  // Discrete noise is added to whole numbers, before anything is divided.
  const bool whole = dp.enabled && fixed.has_grid();
  const double grid = whole ? *dp.noise_discrete : 1;
  numerics::PiecewiseNorm norm(sum.values().size());
  const auto before = [&](std::size_t begin, std::span<double> piece) {
    const double* from = sum.values().data() + begin;
    divide({from, piece.size()}, whole ? 1 : fixed.batch, piece);
    norm.add(begin, piece);
  };
  const auto after = [&](std::size_t, std::span<double> piece) {
    if (whole)
      for (double& v : piece) v = v * grid / fixed.batch;
    to_dtype(piece, fixed.config.run.compute_dtype);
  };
  if (decided.sigma > 0) {
    draw_noise(
        fixed, state, decided, out,
        [&](NoiseRequest& request, const random::Generator& generator, bool first, bool last) {
          request.before = nullptr;
          request.meanwhile = nullptr;
          if (first) {
            request.before = before;
            request.meanwhile = account;
          }
          if (last) request.after = after;
          return generate_noise(state.now.layout, parts, request, generator, out.noise, values);
        });
  } else {
    account();
    const std::span<double> all = values.values();
    numerics::parallel_for(all.size(), fixed.threads, [&](std::size_t begin, std::size_t end) {
      constexpr std::size_t kPiece = 4096;
      for (; begin < end; begin += kPiece) {
        const auto piece = all.subspan(begin, std::min(kPiece, end - begin));
        before(begin, piece);
        after(begin, piece);
      }
    });
  }
  out.signal = norm.value() * (whole ? grid / fixed.batch : 1);
  if (!is_far_from_overflow(out) && !all_finite(std::as_const(values).values()))
    refuse_infinite(fixed, state, [&](std::size_t i) { return std::as_const(values).tensor(i); });
  return out;
}

Drawn draw(const Fixed& fixed, const State& state, Held& held, const Decided& decided) {
  const auto& averages = held.values.averages;
  const auto& rounded = held.values.rounded;
  const Partition& parts = state.now.allocation.plan.partition;
  Drawn out{std::vector<double>(parts.parts()), {}, 0, state.noise};
  double square = 0;
  if (decided.sigma > 0) {
    draw_noise(
        fixed, state, decided, out,
        [&](NoiseRequest& request, const random::Generator& generator, bool first, bool last) {
          request.team = held.team;
          request.square = first ? &square : nullptr;
          if (last) request.rounded = rounded;
          return generate_noise(state.now.layout, parts, request, generator, out.noise, averages);
        });
  } else {
    for (std::size_t i = 0; i < averages.size(); ++i) {
      const double norm = numerics::norm_l2(std::span<const double>(averages[i]), fixed.threads);
      square += norm * norm;
      if (!rounded.empty())
        std::ranges::transform(averages[i], rounded[i].begin(),
                               [](double v) { return static_cast<float>(v); });
    }
  }
  out.signal = std::sqrt(square);
  if (is_far_from_overflow(out)) return out;
  const auto require_finite = [&]<class Real>(const std::vector<std::span<Real>>& tensors) {
    if (!std::ranges::all_of(tensors, [](std::span<const Real> v) { return all_finite(v); }))
      refuse_infinite(fixed, state,
                      [&](std::size_t i) { return std::span<const Real>(tensors[i]); });
  };
  rounded.empty() ? require_finite(averages) : require_finite(rounded);
  return out;
}

}  // namespace discreet::mechanism
