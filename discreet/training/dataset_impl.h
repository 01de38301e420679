#pragma once

#include <functional>
#include <string>

#include "discreet/training/dataset.h"

namespace discreet::training {

// Throws kInvalidDpConfig, naming `what`, unless lower < upper are finite.
void check_bounds(const NumericColumn& bounds, const std::string& what);

// From [lower, upper] to [-1, 1]; what is outside counts as the bound.
float scaled(double value, const NumericColumn& bounds);

// x0, x1, ... and 0, 1, ...: names of features and classes that have none.
void name_features(Dataset& data);

// SHA-256 over sizes, names and the bits of features and labels.
Digest digest_of(const Dataset& data);

}  // namespace discreet::training
