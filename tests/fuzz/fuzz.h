#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// A fuzzer is one file, NAME_fuzz.cpp, that defines this function and a line in CMakeLists.txt.
// It returns 0, and ends the process when a property fails. Both drivers print the input then.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

inline void require(bool holds, const char* otherwise) {
  if (holds) return;
  std::fprintf(stderr, "property failed: %s\n", otherwise);
  std::abort();
}

}  // namespace fuzz
