#pragma once

#include <string>

namespace discreet {

// Bounds as text for people. The printed number is itself a bound: it is rounded away from x.

// x with `digits` digits after the decimal point, or as many significant digits if x is below 0.1.
// round_up never prints less than x, round_down never more.
std::string round_up(double x, int digits = 6);
std::string round_down(double x, int digits = 6);
// The same with five significant digits, for tables.
std::string brief_up(double x);
std::string brief_down(double x);

}  // namespace discreet
