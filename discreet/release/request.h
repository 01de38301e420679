#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace discreet::release {

// What a query asks a model for, and the rights it comes with.
struct Request {
  std::string generation_class;
  std::string purpose;
  // What may stand behind the answer.
  struct Rights {
    std::optional<std::vector<std::string>> classes;  // of contributions, ascending; none: any
    std::optional<std::uint64_t> most_epsilon;        // of any of them, 10^-6; none: any
  } rights;
};

// From JSON:
//   {"generation_class": "predict", "purpose": "research",
//    "rights": {"classes": ["public-text"], "most_epsilon": 2.5}}
// `rights` must be there, and may be empty. most_epsilon is rounded down. Throws kInvalidInput for
// any other text, further members included: a right that is misspelt must not be ignored.
Request parse_request(std::string_view json);

}  // namespace discreet::release
