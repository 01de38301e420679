#pragma once

#include <functional>
#include <string>

#include "discreet/data/dataset.h"

namespace discreet::data {

// Throws kInvalidDpConfig, naming `what`, unless lower < upper are finite.
void check_bounds(const NumericColumn& bounds, const std::string& what);

// From [lower, upper] to [-1, 1]; what is outside counts as the bound.
float scaled(double value, const NumericColumn& bounds);

// The widest record. A header may promise any width; memory for names and for one row is taken
// before the numbers are there.
inline constexpr std::size_t kMostFeatures = std::size_t{1} << 22;

// x0, x1, ... and 0, 1, ...: names of features and classes that have none.
void name_features(Dataset& data);

// SHA-256 over sizes, names and the bits of features and labels.
Digest digest_of(const Dataset& data);

}  // namespace discreet::data
