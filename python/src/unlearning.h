#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "discreet/base/error.h"
#include "discreet/unlearning/noise_source.h"

namespace discreet::python {

// The value that is called so.
template <class Enum>
Enum named(const char* op, const std::string& name, std::initializer_list<Enum> all) {
  std::string known;
  for (const Enum value : all) {
    if (to_string(value) == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(to_string(value));
  }
  invalid_input(op, "'{}' is not one of {}", name, known);
}

inline unlearning::NoiseSource noise_of(std::optional<std::uint64_t> insecure_seed) {
  return insecure_seed ? unlearning::NoiseSource::insecure(*insecure_seed)
                       : unlearning::NoiseSource::secure();
}

}  // namespace discreet::python
