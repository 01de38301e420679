#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace discreet::cli {

// Numbers as a person types them. Each throws Error(kInvalidDpConfig) naming the option and the
// text if it is no such number, so that "nan", "1e400" or "-5" get a sentence and not a guess.

// A finite decimal number: "0.01", "1e-5".
double parse_number(std::string_view option, const std::string& text);
// A whole number from 0 to 2^53: "1000", "1e6".
std::uint64_t parse_count(std::string_view option, const std::string& text);

// `digits` digits after the point (or as many significant ones below 0.1), never below / never
// above x.
std::string round_up(double x, int digits = 6);
std::string round_down(double x, int digits = 6);
// The same for tables: five significant digits.
std::string brief_up(double x);
std::string brief_down(double x);

}  // namespace discreet::cli
