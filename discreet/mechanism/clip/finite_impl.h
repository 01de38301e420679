#pragma once

#include <span>

namespace discreet::mechanism {

// No element is NaN or infinite.
bool all_finite(std::span<const float> values) noexcept;
bool all_finite(std::span<const double> values) noexcept;

}  // namespace discreet::mechanism
