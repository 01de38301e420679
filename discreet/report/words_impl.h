#pragma once

#include <string>
#include <vector>

#include "discreet/report/summary.h"

// The sentences of the page. All return HTML.
namespace discreet::report {

// All digits, for instance "10<sup>−5</sup>", "2.5 × 10<sup>−6</sup>", "0.01".
std::string scientific(double x);
// 12345 as "12,345".
std::string grouped(std::uint64_t n);

// One record "added or removed", "blanked" or "exchanged for another".
std::string neighbours(accounting::Adjacency adjacency);
std::string status_word(Ended ended);

// The maximum probability, in percent, that a guess whether a record was used is right under
// (epsilon, delta), starting from even odds; rounded up to a tenth (from 99 on to a thousandth):
//   1 - (1 - delta) / (1 + e^epsilon)
// From P[guess "in" | in] <= e^epsilon P[guess "in" | out] + delta and the same with in and out
// exchanged (Kairouz, Oh, Viswanath 2015).
double right_guesses_percent(double epsilon, double delta);

// The promise of the run to one person, as paragraphs.
std::string statement(const Declared& declared);
// One sentence: why epsilon has this value, given how the run ended.
std::string basis(const Declared& declared);

std::vector<std::string> guaranteed(const Declared& declared);
std::vector<std::string> not_guaranteed(const Declared& declared, bool is_public);

}  // namespace discreet::report
