#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace discreet::release {

// A request to a model, and its rights.
struct Request {
  std::string generation_class;
  std::string purpose;
  // Limits on what may contribute to the answer.
  struct Rights {
    std::optional<std::vector<std::string>> classes;  // of contributions, ascending; empty: any
    std::optional<std::uint64_t> most_epsilon;        // of any of them, 10^-6; empty: any
  } rights;
};

// From JSON:
//   {"generation_class": "predict", "purpose": "research",
//    "rights": {"classes": ["public-text"], "most_epsilon": 2.5}}
// `rights` is required but may be empty. most_epsilon is rounded down. Throws kInvalidInput for any
// other text, including unknown members: a misspelt right must not be ignored.
Request parse_request(std::string_view json);

}  // namespace discreet::release
