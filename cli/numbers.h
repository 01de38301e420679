#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "discreet/base/text/rounded_text.h"

namespace discreet::cli {

// Numbers as a person types them. Each throws Error(kInvalidDpConfig) naming the option and the
// text if it is not such a number, so that "nan", "1e400" or "-5" get a sentence and not a guess.

// A finite decimal number: "0.01", "1e-5".
double parse_number(std::string_view option, const std::string& text);
// A whole number from 0 to 2^53: "1000", "1e6".
std::uint64_t parse_count(std::string_view option, const std::string& text);
// A failure probability in [1e-300, 0.999999].
double parse_delta(std::string_view option, const std::string& text);
// The value of --threads, from 1 to 1024; the number of processors if it is empty.
int parse_threads(const std::string& text);
// How many records a promise covers together: a whole number from 1 to 2^32.
std::uint64_t parse_group_size(std::string_view option, const std::string& text);

}  // namespace discreet::cli
