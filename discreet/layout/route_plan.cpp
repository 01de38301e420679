#include "discreet/layout/route_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/numerics/rounding.h"

namespace discreet {
namespace {

constexpr std::string_view kSchema = "discreet.route.v1";

bool positive(double x) { return std::isfinite(x) && x > 0; }

// Why the plan is invalid for every layout; empty if it is valid.
std::string problem(const RoutePlan& plan) {
  if (plan.blocks.empty()) return "it permits nothing";
  if (plan.flat_clip && !positive(*plan.flat_clip)) return "its flat bound must be positive";
  std::set<std::uint64_t> seen;
  for (const RouteBlock& block : plan.blocks) {
    if (!positive(block.stddev) || !positive(block.clip) || block.tensors.empty())
      return fmt::format("block {} needs tensors, a positive bound and positive noise", block.name);
    for (std::size_t i = 0; i < block.tensors.size(); ++i) {
      const RouteTensor& t = block.tensors[i];
      if ((i > 0 && t.tensor <= block.tensors[i - 1].tensor) || !seen.insert(t.tensor).second)
        return fmt::format("tensor {} occurs twice, or out of order", t.tensor);
      for (const RouteMask& mask : t.masks) {
        const auto& p = mask.permitted;
        if (p.empty() || p.back() >= mask.slices.count ||
            std::adjacent_find(p.begin(), p.end(), std::greater_equal<>()) != p.end())
          return fmt::format("a mask of tensor {} is empty, out of order or too long", t.tensor);
      }
    }
  }
  return {};
}

std::uint32_t small(const cbor::Value& value) {
  const std::uint64_t number = value.as_unsigned();
  if (number > 0xffffffff) malformed("decode_route_plan", "a number is too large");
  return static_cast<std::uint32_t>(number);
}

}  // namespace

accounting::GaussianGroups noise_of_use(const RoutePlan& plan) {
  accounting::GaussianGroups out;
  for (const RouteBlock& block : plan.blocks)
    out.groups.push_back({numerics::next_down(block.stddev / block.clip), block.clip});
  out.flat_clip = plan.flat_clip;
  return out;
}

void check_route_plan(const RoutePlan& plan, const ModelLayout& layout) {
  if (const std::string bad = problem(plan); !bad.empty()) invalid_input("RoutePlan", "{}", bad);
  if (plan.layout != layout.hash())
    invalid_input("RoutePlan", "it is a plan for another model layout");
  for (const RouteBlock& block : plan.blocks) {
    for (const RouteTensor& t : block.tensors) {
      if (t.tensor >= layout.size())
        invalid_input("RoutePlan", "tensor {} does not exist", t.tensor);
      const Tensor& tensor = layout.tensors()[t.tensor];
      if (!tensor.is_private())
        invalid_input("RoutePlan", "tensor {} receives no private gradient", tensor.name);
      for (const RouteMask& mask : t.masks)
        if (tensor.heads != mask.slices && tensor.experts != mask.slices)
          invalid_input("RoutePlan", "tensor {} does not have such slices", tensor.name);
    }
  }
}

Bytes encode(const RoutePlan& plan) {
  std::vector<cbor::Value> blocks;
  for (const RouteBlock& block : plan.blocks) {
    std::vector<cbor::Value> tensors;
    for (const RouteTensor& t : block.tensors) {
      std::vector<cbor::Value> masks;
      for (const RouteMask& mask : t.masks)
        masks.push_back(cbor::array(
            {mask.slices.count, mask.slices.axis,
             cbor::array(std::vector<cbor::Value>(mask.permitted.begin(), mask.permitted.end()))}));
      tensors.push_back(cbor::array({t.tensor, cbor::array(std::move(masks))}));
    }
    blocks.push_back(
        cbor::array({block.name, block.stddev, block.clip, cbor::array(std::move(tensors))}));
  }
  return cbor::encode(
      cbor::array({kSchema, cbor::Value(plan.layout), cbor::array(std::move(blocks)),
                   plan.flat_clip ? cbor::Value(*plan.flat_clip) : cbor::Value(nullptr)}));
}

RoutePlan decode_route_plan(ByteView bytes) {
  const cbor::Value whole = cbor::decode(bytes);
  try {
    const auto items = [&](const cbor::Value& value, std::size_t count) -> const auto& {
      if (value.as_array().size() != count)
        malformed("decode_route_plan", "an array has the wrong length");
      return value.as_array();
    };
    const auto& parts = items(whole, 4);
    if (parts[0].as_text() != kSchema)
      malformed("decode_route_plan", "it is not a discreet.route.v1");
    RoutePlan plan;
    if (parts[1].as_bytes().size() != plan.layout.size())
      malformed("decode_route_plan", "a hash must have 32 bytes");
    std::copy(parts[1].as_bytes().begin(), parts[1].as_bytes().end(), plan.layout.begin());
    for (const cbor::Value& b : parts[2].as_array()) {
      const auto& fields = items(b, 4);
      RouteBlock block{
          std::string(fields[0].as_text()), fields[1].as_float(), fields[2].as_float(), {}};
      for (const cbor::Value& t : fields[3].as_array()) {
        RouteTensor tensor{items(t, 2)[0].as_unsigned(), {}};
        for (const cbor::Value& m : t.as_array()[1].as_array()) {
          const auto& numbers = items(m, 3);
          RouteMask mask{{small(numbers[0]), small(numbers[1])}, {}};
          for (const cbor::Value& p : numbers[2].as_array()) mask.permitted.push_back(small(p));
          tensor.masks.push_back(std::move(mask));
        }
        block.tensors.push_back(std::move(tensor));
      }
      plan.blocks.push_back(std::move(block));
    }
    if (!parts[3].is_null()) plan.flat_clip = parts[3].as_float();
    if (const std::string bad = problem(plan); !bad.empty())
      malformed("decode_route_plan", "{}", bad);
    return plan;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed("decode_route_plan", "{}", error.sentence());
  }
}

Digest hash_of(const RoutePlan& plan) { return sha256(encode(plan)); }

}  // namespace discreet
