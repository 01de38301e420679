#pragma once

#include <string_view>

namespace discreet {

// The version of the library, "MAJOR.MINOR.PATCH". CONTRIBUTING.md says what bumps which part.
std::string_view version() noexcept;

}  // namespace discreet
