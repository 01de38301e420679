#include "discreet/mechanism/noise/part_values.h"

#include <fmt/format.h>

#include <cmath>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"

namespace discreet::mechanism {
namespace {

bool names(std::string_view key, const Tensor& tensor) {
  if (key == tensor.name || key == tensor.layer || key == tensor.group) return true;
  const std::string_view name = tensor.name;
  return name.size() > key.size() && name.starts_with(key) && name[key.size()] == '.';
}

// Which parts a key reaches, and whether it names a private tensor at all.
struct Reach {
  std::vector<bool> whole;
  bool any = false;
};

Reach reach_of(std::string_view key, const ModelLayout& layout, const Partition& partition) {
  Reach reach{std::vector<bool>(partition.parts(), true)};
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = partition.part_of[i];
    if (part == Partition::kNone) continue;
    const bool named = key == partition.names[part] || names(key, layout.tensors()[i]);
    reach.any |= named;
    if (!named) reach.whole[part] = false;
  }
  return reach;
}

}  // namespace

std::vector<std::optional<double>> values_by_part(const ModelLayout& layout,
                                                  const Partition& partition,
                                                  const NumberMap& values, std::string_view what) {
  std::vector<std::optional<double>> out(partition.parts());
  std::vector<std::size_t> rank(partition.parts());  // of the key that gave the value
  for (const auto& [key, value] : values) {
    if (!std::isfinite(value) || value <= 0)
      invalid_config(what, "{} has {} for {}; it must be finite and positive", what, value, key);
    const Reach reach = reach_of(key, layout, partition);
    if (!reach.any) {
      const auto meant = nearest(key, partition.names);
      invalid_config(what, "{} names {}, which is not a private part of the model{}", what, key,
                     meant ? fmt::format("; did you mean {}?", *meant) : std::string());
    }
    bool reached = false;
    for (std::size_t g = 0; g < partition.parts(); ++g) {
      if (!reach.whole[g]) continue;
      reached = true;
      const std::size_t specific = key == partition.names[g] ? SIZE_MAX : key.size();
      if (out[g] && specific <= rank[g]) continue;
      out[g] = value;
      rank[g] = specific;
    }
    if (!reached)
      invalid_config(what,
                     "{} names {}, which is inside a part with a single value; use a "
                     "clipping.strategy with finer parts, or name the part",
                     what, key);
  }
  return out;
}

}  // namespace discreet::mechanism
