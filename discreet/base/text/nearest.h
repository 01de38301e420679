#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace discreet {

// The candidate that a person who typed `word` most likely meant, for error sentences: the one with
// the smallest edit distance (insert, delete, replace, swap of neighbours; case ignored), the first
// one if several are equally near. Empty if the smallest distance exceeds a third of the longer
// length, rounded up.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace discreet
