#include "discreet/admission/resolver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "discreet/accounting/calibrate.h"
#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/numerics/rounding.h"

namespace discreet::admission {
namespace {
using numerics::next_down;
using numerics::next_up;
using numerics::round_down;

// Relative; more than the rounding of a multiplier over thousands of blocks.
constexpr double kRoom = 0x1p-40;
constexpr double kLedgerRoom = 1e-5;  // of epsilon

void check_terms(const ClassPolicy& c, const Descriptor& d) {
  const bool kept =
      d.clip_norm <= c.clip_norm && d.noise_multiplier >= c.noise_multiplier &&
      d.occurrences <= c.most_occurrences &&
      (!c.amplified || (d.promise == Promise::kAmplified && d.occurrences >= c.amplified->steps));
  if (!kept)
    invalid_input(
        "resolve",
        "the descriptor's bound is more permissive than class {} allows; the gate rejects it",
        d.data_class);
}

// The block of a tensor: the longest module with noise of its own that it belongs to.
std::string block_of(const Policy& policy, const std::string& tensor) {
  std::string best;
  for (const auto& [module, noise] : policy.blocks) {
    const bool inside =
        tensor == module || (tensor.starts_with(module) && tensor.size() > module.size() &&
                             tensor[module.size()] == '.');
    if (inside && module.size() > best.size()) best = module;
  }
  return best.empty() ? "default" : best;
}

std::vector<RouteBlock> blocks_of(const Policy& policy, std::vector<RouteTensor> tensors,
                                  const ModelLayout& layout) {
  std::map<std::string, RouteBlock> blocks;
  for (RouteTensor& t : tensors) {
    const std::string name = block_of(policy, layout.tensors()[t.tensor].name);
    RouteBlock& block = blocks[name];
    block.name = name;
    block.stddev = (name == "default" ? policy.noise : policy.blocks.at(name)).nearest();
    block.tensors.push_back(std::move(t));
  }
  std::vector<RouteBlock> out;
  out.reserve(blocks.size());
  for (auto& [name, block] : blocks) out.push_back(std::move(block));
  return out;
}

// The clip bounds of the definition; `most` is C rounded down, `m` rounded up.
void set_bounds(RoutePlan& plan, BlockClipping clipping, double most, double m) {
  if (clipping == BlockClipping::kFlat) {
    double bound = most;
    for (const RouteBlock& b : plan.blocks) bound = std::min(bound, next_down(b.stddev / m));
    for (RouteBlock& b : plan.blocks) b.clip = bound;
    plan.flat_clip = bound;
    return;
  }
  double squares = 0;
  for (const RouteBlock& b : plan.blocks) squares = next_up(squares + next_up(b.stddev * b.stddev));
  const auto count = static_cast<double>(plan.blocks.size());
  const double by_noise = next_down(1 / next_up(m * next_up(std::sqrt(count))));
  const double by_norm = next_down(most / next_up(std::sqrt(squares)));
  const double factor = std::min(by_noise, by_norm);
  for (RouteBlock& b : plan.blocks) b.clip = next_down(b.stddev * factor);
}

bool is_gaussian(NoiseFamily family) {
  return family == NoiseFamily::kGaussian || family == NoiseFamily::kRoundedGaussian;
}

// The multiplier of a use and what all uses are promised, every pattern.
void promise_every_pattern(const Descriptor& d, const ModelLayout& layout, const UseNoise& noise,
                           Resolution& out) {
  using Family = NoiseFamily;
  const double z = d.noise_multiplier.from_above();
  const double least_z = d.noise_multiplier.from_below();
  out.most_uses = d.occurrences;
  if (noise.family == Family::kSkellam) {
    const double stddev = next_down(out.plan.blocks.front().stddev / noise.grid);
    out.required_multiplier = skellam_use(d.occurrences, z, stddev, layout.private_parameters());
  } else {
    out.required_multiplier = noise.family == Family::kLaplace ? laplace_use(d.occurrences, z)
                                                               : gaussian_use(d.occurrences, z);
  }
  if (promises_gdp(noise.family))
    out.gdp_mu = next_up(1 / least_z);
  else
    out.renyi_rho = next_up(1 / (2 * next_down(least_z * least_z)));
  if (!std::isfinite(out.required_multiplier))
    invalid_config("resolve",
                   "{} uses of Skellam noise {} on grid steps of {} cannot keep a promise of "
                   "multiplier {}; use a finer grid or more noise",
                   d.occurrences, out.plan.blocks.front().stddev, noise.grid, z);
}

void promise_amplified(const Amplified& amplified, const Descriptor& d, Resolution& out) {
  const double delta = amplified.delta.from_below();
  const double rate = std::min(1.0, amplified.rate.from_above());
  const accounting::Event once(accounting::Gaussian{d.noise_multiplier.from_above()},
                               accounting::NoSampling{}, accounting::Adjacency::kAddRemove);
  out.gaussian_epsilon =
      accounting::certified_epsilon(accounting::reduce({{once, 1}}), delta).value;
  // A ledger counts in millionths, and rounds rate and multiplier pessimistically.
  const double lower = out.gaussian_epsilon->lower;
  const double target = std::max(lower / 2, lower - kLedgerRoom);
  const auto calibrated =
      accounting::calibrate_noise_multiplier(rate, amplified.steps, {target, delta});
  out.amplified_epsilon = calibrated.reached.value;
  out.required_multiplier = calibrated.value;
  out.most_uses = amplified.steps;
}

}  // namespace

Resolution resolve(const Policy& policy, const Descriptor& d, const ModelLayout& layout,
                   const UseNoise& noise) {
  const auto found = policy.classes.find(d.data_class);
  if (found == policy.classes.end())
    invalid_input("resolve", "the policy has no class {}", d.data_class);
  const ClassPolicy& c = found->second;
  check_terms(c, d);

  Resolution out{};
  out.plan.layout = layout.hash();
  out.plan.blocks = blocks_of(policy, permitted_tensors(c.profile, d.adapter, layout), layout);
  if (has_grid(noise.family) && !(noise.grid > 0))
    invalid_input("resolve", "the grid step of discrete noise is {}; it must be above 0",
                  noise.grid);
  if (!is_gaussian(noise.family) && (c.amplified || out.plan.blocks.size() != 1))
    invalid_config("resolve",
                   "class {} is {}; that promise needs gaussian or rounded_gaussian noise, not {}",
                   d.data_class, c.amplified ? "amplified" : "in several blocks of the policy",
                   spelling(noise.family));
  if (c.amplified)
    promise_amplified(*c.amplified, d, out);
  else
    promise_every_pattern(d, layout, noise, out);

  // The multiplier of a use is reported rounded down: leave it room to stay above m.
  set_bounds(out.plan, policy.clipping, d.clip_norm.from_below(),
             next_up(out.required_multiplier * (1 + kRoom)));
  for (const RouteBlock& b : out.plan.blocks)
    if (!(b.clip > 0) || !std::isnormal(b.clip))
      invalid_config("resolve", "the noise {} of block {} is too small for multiplier {}", b.stddev,
                     b.name, out.required_multiplier);
  check_route_plan(out.plan, layout);

  out.use_multiplier = accounting::effective_noise_multiplier(noise_of_use(out.plan));
  if (!(out.use_multiplier >= out.required_multiplier))
    invalid_config("resolve", "a use would have multiplier {}, less than the promised {}",
                   out.use_multiplier, out.required_multiplier);
  double least = std::numeric_limits<double>::infinity();
  std::set<std::string> layers;
  for (const RouteBlock& b : out.plan.blocks) {
    least = std::min(least, b.stddev);
    for (const RouteTensor& t : b.tensors) layers.insert(layout.tensors()[t.tensor].layer);
  }
  out.use_variance = round_down(least * least, 1);
  const std::vector<std::string> stack = layer_stack(layout);
  out.stack = stack.size();
  for (const std::string& layer : stack)
    if (layers.contains(layer)) out.layers.push_back(layer);
  return out;
}

}  // namespace discreet::admission
