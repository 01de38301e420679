#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/error.h"

// A fuzzer is one file, NAME_fuzz.cpp, that defines this function and a line in CMakeLists.txt.
// It returns 0, and ends the process when a property fails. Both drivers print the input then.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

// Inputs to start from, besides the files in corpus/NAME. A fuzzer defines it for formats that are
// signed or chained: made from today's code, the inputs never go stale. Empty unless defined.
std::vector<discreet::Bytes> seeds();

// A seed of a fuzzer whose first byte chooses the parser.
template <class Text>
discreet::Bytes seed(std::uint8_t parser, const Text& text) {
  discreet::Bytes out(1 + text.size(), parser);
  std::copy(text.begin(), text.end(), out.begin() + 1);
  return out;
}

inline std::string_view text_of(discreet::ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void require(bool holds, const char* otherwise) {
  if (holds) return;
  std::fprintf(stderr, "property failed: %s\n", otherwise);
  std::abort();
}

// Runs f. It may throw errors of these codes with a sentence of one line, and nothing else.
template <class F>
void throws_only(std::initializer_list<discreet::ErrorCode> codes, F&& f) {
  try {
    f();
  } catch (const discreet::Error& error) {
    bool known = false;
    for (const discreet::ErrorCode code : codes) known |= error.code() == code;
    if (!known) std::fprintf(stderr, "%s\n", error.what());
    require(known, "another code was thrown");
    require(error.sentence().find('\n') == std::string::npos, "the sentence has two lines");
  }
}

}  // namespace fuzz
