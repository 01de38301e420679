#pragma once

#include <string>

namespace discreet {

// Bounds as text for people. What is printed is itself a bound: rounding never helps.

// `digits` digits after the point (or as many significant ones below 0.1), never below / never
// above x.
std::string round_up(double x, int digits = 6);
std::string round_down(double x, int digits = 6);
// The same for tables: five significant digits.
std::string brief_up(double x);
std::string brief_down(double x);

}  // namespace discreet
