#include "discreet/mechanism/route/route.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_l1_impl.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/mechanism/clip/ghost/ghost_impl.h"
#include "discreet/mechanism/route/route_impl.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

using numerics::next_down;
using numerics::next_up;
using Tables = Router::Tables;

constexpr const char* kOperator = "Router";
constexpr double kNoBound = std::numeric_limits<double>::infinity();

// The tensors that some plan permits, with the block of each; kNone for the others.
std::vector<std::uint32_t> blocks_of(const Routes& routes, const ModelLayout& layout,
                                     std::vector<std::string>& names, std::vector<double>& stddev) {
  std::vector<const RouteBlock*> found(layout.size());
  for (const RoutePlan& plan : routes.plans)
    for (const RouteBlock& block : plan.blocks)
      for (const RouteTensor& t : block.tensors) {
        const RouteBlock*& first = found[t.tensor];
        if (first == nullptr) first = &block;
        if (first->name != block.name || first->stddev != block.stddev)
          invalid_input(kOperator,
                        "the plans belong to different policies: tensor {} has noise {} of block "
                        "{} in one and {} of block {} in another",
                        layout.tensors()[t.tensor].name, first->stddev, first->name, block.stddev,
                        block.name);
      }
  std::map<std::string, std::uint32_t> index;
  std::vector<std::uint32_t> out(layout.size(), Partition::kNone);
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (found[i] == nullptr) continue;
    const auto [at, fresh] =
        index.try_emplace(found[i]->name, static_cast<std::uint32_t>(names.size()));
    if (fresh) {
      names.push_back(found[i]->name);
      stddev.push_back(found[i]->stddev);
    } else if (stddev[at->second] != found[i]->stddev) {
      invalid_input(kOperator,
                    "the plans belong to different policies: block {} has noise {} and {}",
                    found[i]->name, stddev[at->second], found[i]->stddev);
    }
    out[i] = at->second;
  }
  return out;
}

void index_by_block(RoutedParts& parts, std::size_t blocks) {
  parts.of_blocks.resize(blocks);
  for (std::uint32_t p = 0; p < parts.parts(); ++p) parts.of_blocks[parts.block[p]].push_back(p);
}

// The lines of a tensor within which every mask is constant, and whom each permits.
class Lines {
 public:
  Lines(const Tables& tables, std::size_t tensor) : tables_(tables), tensor_(tensor) {
    const auto& shape = tables.layout.tensors()[tensor].shape;
    std::size_t axes = 0;  // that are masked, or before one that is
    for (std::size_t c = 0; c < tables.classes; ++c)
      if (const RouteTensor* t = tables.at[c][tensor])
        for (const RouteMask& mask : t->masks)
          axes = std::max<std::size_t>(axes, mask.slices.axis + 1);
    shape_.assign(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axes));
    count = 1;
    for (const std::size_t n : shape_) count *= n;
    length = count == 0 ? 0 : tables.layout.elements(tensor) / count;
    masks_.resize(tables.classes);
    for (std::size_t c = 0; c < tables.classes; ++c)
      for (std::size_t axis = 0; tables.at[c][tensor] != nullptr && axis < axes; ++axis)
        masks_[c].push_back(tables.axis_mask(c, tensor, axis));
  }

  // One per class.
  std::vector<std::uint8_t> permitted(std::size_t line) const {
    std::vector<std::size_t> at(shape_.size());
    for (std::size_t axis = shape_.size(); axis-- > 0; line /= shape_[axis])
      at[axis] = line % shape_[axis];
    std::vector<std::uint8_t> out(tables_.classes);
    for (std::size_t c = 0; c < tables_.classes; ++c) {
      out[c] = tables_.at[c][tensor_] != nullptr ? 1 : 0;
      for (std::size_t axis = 0; axis < masks_[c].size(); ++axis)
        if (!masks_[c][axis].empty() && masks_[c][axis][at[axis]] == 0) out[c] = 0;
    }
    return out;
  }

  std::size_t count, length;

 private:
  const Tables& tables_;
  std::size_t tensor_;
  std::vector<std::size_t> shape_;
  std::vector<std::vector<std::vector<std::uint8_t>>> masks_;  // class, axis
};

// Cuts the tensors into cells: coordinates that the same classes permit.
void make_cells(Tables& tables, const std::vector<std::uint32_t>& block_of) {
  std::vector<std::vector<std::uint8_t>> patterns;  // one per cell
  for (std::size_t i = 0; i < tables.layout.size(); ++i) {
    if (block_of[i] == Partition::kNone) continue;
    const Lines lines(tables, i);
    std::map<std::vector<std::uint8_t>, std::vector<CoordinateRange>> cells;
    for (std::size_t line = 0; line < lines.count; ++line) {
      std::vector<CoordinateRange>& own = cells[lines.permitted(line)];
      const std::size_t begin = line * lines.length;
      if (!own.empty() && own.back().end == begin)
        own.back().end += lines.length;
      else
        own.push_back({i, begin, begin + lines.length, 0});
    }
    for (auto& [pattern, ranges] : cells) {
      if (std::ranges::count(pattern, 1) == 0) continue;
      for (CoordinateRange range : ranges) {
        range.part = static_cast<std::uint32_t>(tables.cells.parts());
        tables.ranges.push_back(range);
      }
      tables.cells.block.push_back(block_of[i]);
      patterns.push_back(pattern);
    }
  }
  for (std::size_t c = 0; c < tables.classes; ++c)
    for (const auto& pattern : patterns) tables.cells.permitted.push_back(pattern[c]);
  index_by_block(tables.cells, tables.blocks());
  tables.reach = Reach(tables.layout, tables.ranges, tables.cells.permitted, tables.classes);
}

void make_blocks(Tables& tables, const std::vector<std::uint32_t>& block_of) {
  RoutedParts& parts = tables.whole_blocks;
  parts.permitted.resize(tables.classes * tables.blocks());
  for (std::uint32_t b = 0; b < tables.blocks(); ++b) parts.block.push_back(b);
  for (std::size_t c = 0; c < tables.classes; ++c)
    for (std::size_t i = 0; i < tables.layout.size(); ++i)
      if (tables.at[c][i] != nullptr) parts.permitted[c * tables.blocks() + block_of[i]] = 1;
  index_by_block(parts, tables.blocks());
}

void make_tensors(Tables& tables, const std::vector<std::uint32_t>& block_of) {
  tables.tensor_plan.partition = partition(tables.layout, Cut::kTensor);
  std::vector<std::size_t> private_tensors;
  for (std::size_t i = 0; i < tables.layout.size(); ++i)
    if (block_of[i] != Partition::kNone) private_tensors.push_back(i);
  for (const std::size_t i : private_tensors) tables.tensors.block.push_back(block_of[i]);
  for (std::size_t c = 0; c < tables.classes; ++c)
    for (const std::size_t i : private_tensors)
      tables.tensors.permitted.push_back(tables.at[c][i] != nullptr ? 1 : 0);
  index_by_block(tables.tensors, tables.blocks());
  for (const std::uint32_t b : tables.tensors.block)
    tables.tensor_plan.clip.push_back(tables.largest[b]);
}

// Computes scales from the norms of parts, and norms and scales by block for statistics.
class Decider {
 public:
  Decider(const Tables& tables, const RoutedParts& parts, std::span<const std::uint32_t> classes,
          Norm norm)
      : tables_(tables),
        parts_(parts),
        classes_(classes),
        together_from_above_(norm == Norm::kL1 ? sum_from_above : norm_from_above) {
    by_block.records = classes.size();
    by_block.parts = tables.blocks();
    by_block.norms.assign(classes.size() * tables.blocks(), 0.0);
    by_block.scales.assign(classes.size() * tables.blocks(), 1.0);
    by_block.zeroed.assign(classes.size(), 0);
    together_.resize(parts.parts());
    clipped_.resize(tables.blocks());
  }

  // Does not allocate, hence does not throw.
  void operator()(std::size_t first, std::size_t end, RecordNorms& norms) {
    for (std::size_t i = first; i < end; ++i) decide(i, norms);
  }

  RecordNorms by_block;

 private:
  void decide(std::size_t i, RecordNorms& norms) {
    const auto scales = std::span(norms.scales).subspan(i * norms.parts, norms.parts);
    const auto own = std::span(by_block.scales).subspan(i * tables_.blocks(), tables_.blocks());
    std::fill(scales.begin(), scales.end(), 0.0);
    by_block.zeroed[i] = norms.zeroed[i];
    const std::uint32_t c = classes_[i];
    if (norms.zeroed[i] != 0) std::fill(own.begin(), own.end(), 0.0);
    if (norms.zeroed[i] != 0 || c == kNoRoute) return;
    const std::uint8_t* permitted = parts_.permitted.data() + c * parts_.parts();
    for (std::size_t b = 0; b < tables_.blocks(); ++b) {
      clipped_[b] = 0;
      const double bound = tables_.clip[c * tables_.blocks() + b];
      if (bound == 0) continue;
      std::size_t count = 0;
      for (const std::uint32_t p : parts_.of_blocks[b])
        if (permitted[p] != 0) together_[count++] = norms.norm(i, p);
      const double norm = together_from_above_(std::span(together_).first(count));
      by_block.norms[i * tables_.blocks() + b] = norm;
      own[b] = clip_scale(norm, bound);
      // The product of an overflowed norm and its scale 0 would be NaN.
      clipped_[b] = own[b] == 0 ? 0 : next_up(norm * own[b]);
    }
    if (tables_.flat[c] != kNoBound) {
      const double flat = clip_scale(together_from_above_(clipped_), tables_.flat[c]);
      for (double& scale : own) scale = flat == 1 ? scale : std::max(0.0, next_down(scale * flat));
    }
    for (std::size_t p = 0; p < parts_.parts(); ++p)
      if (permitted[p] != 0) scales[p] = own[parts_.block[p]];
  }

  const Tables& tables_;
  const RoutedParts& parts_;
  std::span<const std::uint32_t> classes_;
  double (*together_from_above_)(std::span<const double>) noexcept;
  std::vector<double> together_, clipped_;
};

template <class Real>
RecordNorms clip_rows(const Tables& tables, const PerSampleGradients<Real>& gradients,
                      std::span<const std::uint32_t> classes, const ClipMethod& method,
                      const ClipOptions& options, GradientSum& sum) {
  if (method.norm == Norm::kL1) {
    Decider decider(tables, tables.cells, classes, Norm::kL1);
    RecordNorms norms =
        l1_norms(tables.layout, gradients, tables.ranges, tables.cells.permits(classes), options);
    norms.scales.resize(norms.norms.size());
    decider(0, norms.records, norms);
    add_ranges(tables.layout, gradients, tables.ranges, norms, options.threads, sum);
    return std::move(decider.by_block);
  }
  Decider decider(tables, tables.whole_blocks, classes, Norm::kL2);
  if (method.grid == 0) {
    clip_reached(tables.layout, gradients, tables.partition, tables.reach, classes, options,
                 std::ref(decider), sum);
    return std::move(decider.by_block);
  }
  RecordNorms norms =
      reached_norms(tables.layout, gradients, tables.partition, tables.reach, classes, options);
  norms.scales.resize(norms.norms.size());
  decider(0, norms.records, norms);
  const Permits permits = tables.cells.permits(classes);
  add_on_grid(
      tables.layout, gradients, tables.ranges,
      [&](std::size_t i, const CoordinateRange& range) {
        return permits(i, range.part) ? norms.scale(i, tables.cells.block[range.part]) : 0;
      },
      method.grid, sum);
  return std::move(decider.by_block);
}

template <class Real>
RecordNorms clip_passes(const Tables& tables, const BackwardPass<Real>& pass,
                        std::span<const std::uint32_t> classes, const ClipOptions& options,
                        GradientSum& sum) {
  check_pass(tables.layout, pass, kOperator);
  const MaskedPass<Real> own = masked(tables, pass, classes);
  const Permits permits = tables.tensors.permits(classes);
  Ghost<Real> ghost{kOperator, tables.layout, own.pass, tables.tensor_plan, options, &permits};
  ghost.begin(sum);
  for (std::size_t l = 0; l < own.pass.layers.size(); ++l) ghost.measure(l);
  Decider decider(tables, tables.tensors, classes, Norm::kL2);
  decider(0, classes.size(), ghost.norms);
  Target target(sum);
  for (std::size_t l = 0; l < own.pass.layers.size(); ++l) ghost.add(l, target);
  target.finish();
  return std::move(decider.by_block);
}

}  // namespace

std::vector<std::uint8_t> Router::Tables::axis_mask(std::size_t c, std::size_t tensor,
                                                    std::size_t axis) const {
  std::vector<std::uint8_t> out;
  if (at[c][tensor] == nullptr) return out;
  const std::size_t n = layout.tensors()[tensor].shape[axis];
  for (const RouteMask& mask : at[c][tensor]->masks) {
    if (mask.slices.axis != axis) continue;
    if (out.empty()) out.assign(n, 1);
    const std::size_t slice = n / mask.slices.count;
    for (std::size_t k = 0; k < n; ++k)
      if (!std::ranges::binary_search(mask.permitted, k / slice)) out[k] = 0;
  }
  return out;
}

Digest hash_of(const Routes& routes) {
  std::vector<cbor::Value> plans;
  for (const RoutePlan& plan : routes.plans) plans.emplace_back(ByteView(hash_of(plan)));
  return sha256(cbor::encode(
      cbor::array({static_cast<std::uint64_t>(routes.injection), cbor::array(std::move(plans))})));
}

Router::Router(Routes routes, const ModelLayout& layout)
    : routes_(std::move(routes)), tables_(std::make_unique<Tables>()) {
  if (routes_.plans.empty())
    invalid_input(kOperator, "there is no plan; a routed run needs at least one class");
  for (const RoutePlan& plan : routes_.plans) check_route_plan(plan, layout);
  Tables& t = *tables_;
  Partition& parts = allocation_.plan.partition;
  parts.part_of = blocks_of(routes_, layout, parts.names, t.stddev);
  std::vector<std::string> closed;
  parts.elements.resize(parts.names.size());
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (parts.part_of[i] != Partition::kNone)
      parts.elements[parts.part_of[i]] += layout.elements(i);
    else if (layout.tensors()[i].is_private())
      closed.push_back(layout.tensors()[i].name);
  t.layout = layout.with_public(closed);
  t.classes = routes_.plans.size();
  t.at.assign(t.classes, std::vector<const RouteTensor*>(layout.size(), nullptr));
  t.largest.assign(t.blocks(), 0);
  double least = kNoBound;
  for (std::size_t c = 0; c < t.classes; ++c) {
    const RoutePlan& plan = routes_.plans[c];
    multipliers_.push_back(accounting::effective_noise_multiplier(noise_of_use(plan)));
    least = std::min(least, multipliers_.back());
    for (const RouteBlock& block : plan.blocks) {
      for (const RouteTensor& tensor : block.tensors) t.at[c][tensor.tensor] = &tensor;
      double& largest = t.largest[parts.part_of[block.tensors.front().tensor]];
      largest = std::max(largest, std::min(block.clip, plan.flat_clip.value_or(kNoBound)));
    }
  }
  if (!(std::isnormal(least) && least > 0))
    invalid_config(kOperator, "a class would have the invalid noise multiplier {}", least);
  for (const double stddev : t.stddev) {
    allocation_.plan.clip.push_back(next_up(stddev / least));
    allocation_.multiplier.push_back(1);
  }
  t.partition = parts;
  make_cells(t, parts.part_of);
  make_blocks(t, parts.part_of);
  make_tensors(t, parts.part_of);
  charge(0, 0);
}

Router::~Router() = default;
Router::Router(Router&&) noexcept = default;

bool Router::charge(double rounding, double most) {
  Tables& t = *tables_;
  // The largest difference of two roundings, in units of the noise.
  double square = 0;
  for (std::size_t b = 0; b < t.blocks(); ++b) {
    const double one = next_up(next_up(rounding * t.largest[b]) / t.stddev[b]);
    square = next_up(square + next_up(one * one));
  }
  const double shift = rounding == 0 ? 0 : next_up(std::sqrt(square));
  std::vector<double> theta;
  for (const double m : multipliers_) theta.push_back(shift == 0 ? 0 : next_up(shift * m));
  if (std::ranges::any_of(theta, [&](double x) { return !(x <= most); })) return false;
  theta_ = std::move(theta);
  t.clip.assign(t.classes * t.blocks(), 0);
  t.flat.assign(t.classes, kNoBound);
  for (std::size_t c = 0; c < t.classes; ++c) {
    const RoutePlan& plan = routes_.plans[c];
    const auto with_room = [&](double bound) {
      return theta_[c] == 0 ? bound : next_down(bound * next_down(1 - theta_[c]));
    };
    for (const RouteBlock& block : plan.blocks) {
      const std::size_t b = allocation_.plan.partition.part_of[block.tensors.front().tensor];
      t.clip[c * t.blocks() + b] = with_room(block.clip);
    }
    if (plan.flat_clip) t.flat[c] = with_room(*plan.flat_clip);
  }
  return true;
}

const Routes& Router::routes() const noexcept { return routes_; }
std::size_t Router::classes() const noexcept { return tables_->classes; }
const ModelLayout& Router::layout() const noexcept { return tables_->layout; }
double Router::noise_multiplier() const noexcept { return *std::ranges::min_element(multipliers_); }

RecordNorms Router::clip(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                         const ClipMethod& method, const ClipOptions& options,
                         GradientSum& sum) const {
  if (classes.size() != records_of(microbatch))
    invalid_input(kOperator, "found {} classes for {} records; expected one for each record",
                  classes.size(), records_of(microbatch));
  for (const std::uint32_t c : classes)
    if (c != kNoRoute && c >= tables_->classes)
      invalid_input(kOperator, "class {} does not exist; the run has {} classes", c,
                    tables_->classes);
  if (method.norm == Norm::kL1 && tables_->blocks() != 1)
    invalid_config(
        kOperator,
        "laplace noise can be accounted only for one block of the policy; this policy has {}",
        tables_->blocks());
  check_form(kOperator, method, microbatch);
  const auto clipped = [&](const auto& form) {
    if constexpr (requires { form.tensors; })
      return clip_rows(*tables_, form, classes, method, options, sum);
    else
      return clip_passes(*tables_, form, classes, options, sum);
  };
  return std::visit(clipped, microbatch);
}

}  // namespace discreet::mechanism
