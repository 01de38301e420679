#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/layout/layout.h"

namespace discreet::mechanism {

// The value that a map of the configuration (clip_norm_map, sensitivity_map, sigma_map,
// noise.per_layer_multiplier) gives to each part of a partition; none where it gives none.
//
// A key names a part, or a tensor, a layer, a group, or a module ("a.b" has every tensor whose name
// begins with "a.b."). It reaches a part if all tensors of the part are in it; of several keys that
// reach a part the part's own name wins, then the longest key.
//   what: the key of the configuration, for messages.
// Throws kInvalidDpConfig, naming key and nearest spelling, if a value is not finite and positive,
// if a key names nothing private, or only pieces of parts: they cannot have a value of their own.
std::vector<std::optional<double>> values_by_part(const ModelLayout& layout,
                                                  const Partition& partition,
                                                  const NumberMap& values, std::string_view what);

}  // namespace discreet::mechanism
