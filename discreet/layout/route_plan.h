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

// The route of one class of records: the parameters that its gradient may reach, the norms to which
// it is clipped, and the noise that hides it. Plain data: admission produces it, the router
// consumes it. Records with equal plans belong to one class.
//
// For a record with gradient g, the router forms
//   g'  = g on the permitted coordinates, 0 elsewhere
//   g'' = each block of g' clipped to norm clip_b; then the whole clipped to flat_clip, if given
// and adds it to the sum. Noise N(0, stddev_b^2) is added to every coordinate of block b,
// independent of the participating records. (Laplace noise: L1 norms and a single block; other
// families: noise of that standard deviation.)

// Equal slices of a tensor along one axis, some of which are permitted: attention heads or experts.
struct RouteMask {
  Slices slices;
  std::vector<std::uint32_t> permitted;  // ascending, unique, < slices.count, at least one
  friend bool operator==(const RouteMask&, const RouteMask&) = default;
};

struct RouteTensor {
  std::uint64_t tensor = 0;  // its index in the layout
  // A coordinate is permitted if every mask permits it; without masks, the whole tensor is.
  std::vector<RouteMask> masks;
  friend bool operator==(const RouteTensor&, const RouteTensor&) = default;
};

struct RouteBlock {
  std::string name;                  // the name of the policy
  double stddev = 0;                 // s_b > 0: noise on the sum, equal for all records
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

// The class of a record that contributes nothing to a step, for instance one without uses left. It
// keeps its place in the batch, and none of its values is read.
inline constexpr std::uint32_t kNoRoute = 0xffffffff;

// The noise of one use for the accountant: the multiplier stddev_b / clip_b of each block, rounded
// down, within the flat bound. Its effective_noise_multiplier is the sigma of a use.
accounting::GaussianGroups noise_of_use(const RoutePlan& plan);

// Throws kInvalidInput, naming the block or tensor, unless the plan satisfies the conditions above
// and matches the layout: its hash, private tensors only, the layout's slices.
void check_route_plan(const RoutePlan& plan, const ModelLayout& layout);

// Deterministic CBOR: equal plans have equal bytes. decode throws kMalformed for other bytes;
// conditions that involve the layout are checked by check_route_plan.
Bytes encode(const RoutePlan& plan);
RoutePlan decode_route_plan(ByteView bytes);
// SHA-256 of the bytes.
Digest hash_of(const RoutePlan& plan);

}  // namespace discreet
