#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace discreet {

// The candidate that a person who typed `word` most likely meant: the one of least edit distance
// (insert, delete, replace, swap of neighbours; letters compared without case), the first of
// equals, if the distance is at most a third of the longer length, rounded up. For error sentences.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace discreet
