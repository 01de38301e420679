#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"
#include "discreet/layout/layout.h"

namespace discreet {

// What a router needs to know about one kind of record: which parameters its gradient may reach, to
// which norms it is cut, and the noise that hides it. Plain data: admission produces it, the router
// consumes it. Records with equal plans are of one record class.
//
// For a record with gradient g, the router forms
//   g'  = g on the permitted coordinates, 0 elsewhere
//   g'' = each block of g' cut to norm clip_b; then the whole cut to flat_clip, if there is one
// adds it to the sum, and N(0, stddev_b^2) falls on every coordinate of block b whoever takes part.
// (Laplace noise: norms are of L1, in one block; other families: noise of that deviation.)

// Equal slices of a tensor along one axis, of which some are permitted: attention heads or experts.
struct RouteMask {
  Slices slices;
  std::vector<std::uint32_t> permitted;  // ascending, none twice, < slices.count, at least one
  friend bool operator==(const RouteMask&, const RouteMask&) = default;
};

struct RouteTensor {
  std::uint64_t tensor = 0;  // its index in the layout
  // A coordinate is permitted if every mask permits it; no mask: the whole tensor.
  std::vector<RouteMask> masks;
  friend bool operator==(const RouteTensor&, const RouteTensor&) = default;
};

struct RouteBlock {
  std::string name;                  // the policy's
  double stddev = 0;                 // s_b > 0: of the noise on the sum, the same for every record
  double clip = 0;                   // > 0: bound of the L2 norm of the record's part
  std::vector<RouteTensor> tensors;  // ascending, at least one
  friend bool operator==(const RouteBlock&, const RouteBlock&) = default;
};

struct RoutePlan {
  Digest layout{};                  // hash of the layout its indices refer to
  std::vector<RouteBlock> blocks;   // disjoint, at least one
  std::optional<double> flat_clip;  // > 0: bound of the L2 norm over all blocks
  friend bool operator==(const RoutePlan&, const RoutePlan&) = default;
};

// The class of a record that contributes nothing to a step, such as one without uses left: it keeps
// its place in the batch, and none of its values is read.
inline constexpr std::uint32_t kNoRoute = 0xffffffff;

// The noise of one use as the accountant sees it: per block the multiplier stddev_b / clip_b,
// rounded down, inside the flat bound. Its effective_noise_multiplier is the sigma of a use.
accounting::GaussianGroups noise_of_use(const RoutePlan& plan);

// Throws kInvalidInput, naming the block or tensor, unless the plan is as above and fits the
// layout: its hash, private tensors only, slices as the layout has them.
void check_route_plan(const RoutePlan& plan, const ModelLayout& layout);

// Deterministic CBOR: equal plans have equal bytes. decode throws kMalformed for other bytes; what
// only the layout can tell is left to check_route_plan.
Bytes encode(const RoutePlan& plan);
RoutePlan decode_route_plan(ByteView bytes);
// SHA-256 of the bytes.
Digest hash_of(const RoutePlan& plan);

}  // namespace discreet
