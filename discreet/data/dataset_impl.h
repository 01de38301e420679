#pragma once

#include <functional>
#include <string>

#include "discreet/data/dataset.h"

namespace discreet::data {

// Throws kInvalidDpConfig, naming `what`, unless lower < upper are finite.
void check_bounds(const NumericColumn& bounds, const std::string& what);

// Maps [lower, upper] to [-1, 1]; values outside are clamped.
float scaled(double value, const NumericColumn& bounds);

// The maximum number of features. A header may claim any width, and memory for names and one row is
// allocated before the numbers are read.
inline constexpr std::size_t kMostFeatures = std::size_t{1} << 22;

// Names features x0, x1, ... and classes 0, 1, ... if they have no names.
void name_features(Dataset& data);

// SHA-256 over sizes, names and the bits of features and labels.
Digest digest_of(const Dataset& data);

}  // namespace discreet::data
