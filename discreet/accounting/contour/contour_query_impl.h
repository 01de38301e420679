#pragma once

#include <optional>

#include "discreet/accounting/contour/contour.h"
#include "discreet/accounting/contour/contour_totals_impl.h"

namespace discreet::accounting::contour {

// The queries of contour.h on given totals; `spoil` is for tests.
std::optional<ContourResult> query_epsilon(Totals& totals, const Composition& composition,
                                           double delta, double relative_width,
                                           const Spoil& spoil = {});
std::optional<ContourResult> query_delta(Totals& totals, const Composition& composition,
                                         double epsilon, double relative_width,
                                         const Spoil& spoil = {});
bool query_holds(Totals& totals, const Composition& composition, double epsilon, double delta);

}  // namespace discreet::accounting::contour
