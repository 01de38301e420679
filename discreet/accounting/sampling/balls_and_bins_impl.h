#pragma once

#include "discreet/accounting/composition.h"
#include "discreet/accounting/sampling/geometric_law_impl.h"
#include "discreet/accounting/sampling/loss_law_impl.h"

namespace discreet::accounting {

// The law of the sum of t copies of V on a grid of the given step, above or below it in put order.
// cut: the mass below and the mean above that each stage may move to the ends.
GeometricLaw allocation_law(double sigma, std::uint64_t batches, double step, double cut,
                            Rounding rounding);

}  // namespace discreet::accounting
