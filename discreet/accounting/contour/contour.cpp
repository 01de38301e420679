#include "discreet/accounting/contour/contour.h"

#include "discreet/accounting/contour/contour_query_impl.h"

namespace discreet::accounting {

std::optional<ContourResult> contour_epsilon(const Composition& composition, Direction direction,
                                             double delta, double relative_width) {
  contour::Totals totals(direction);
  return contour::query_epsilon(totals, composition, delta, relative_width);
}

std::optional<ContourResult> contour_delta(const Composition& composition, Direction direction,
                                           double epsilon, double relative_width) {
  contour::Totals totals(direction);
  return contour::query_delta(totals, composition, epsilon, relative_width);
}

bool contour_holds(const Composition& composition, Direction direction, double epsilon,
                   double delta) {
  contour::Totals totals(direction);
  return contour::query_holds(totals, composition, epsilon, delta);
}

struct ContourSession::State {
  contour::Totals totals;
};

ContourSession::ContourSession(Direction direction)
    : state_(std::make_unique<State>(State{contour::Totals(direction)})) {}
ContourSession::~ContourSession() = default;
ContourSession::ContourSession(ContourSession&&) noexcept = default;
ContourSession& ContourSession::operator=(ContourSession&&) noexcept = default;

std::optional<ContourResult> ContourSession::epsilon(const Composition& composition, double delta,
                                                     double relative_width) {
  return contour::query_epsilon(state_->totals, composition, delta, relative_width);
}

std::optional<ContourResult> ContourSession::delta(const Composition& composition, double epsilon,
                                                   double relative_width) {
  return contour::query_delta(state_->totals, composition, epsilon, relative_width);
}

bool ContourSession::holds(const Composition& composition, double epsilon, double delta) {
  return contour::query_holds(state_->totals, composition, epsilon, delta);
}

}  // namespace discreet::accounting
