#include "discreet/numerics/strict_arithmetic.h"

#include "discreet/base/error.h"

namespace discreet::numerics {

void require_round_to_nearest() {
  // Volatile, so that the sums are done by this thread's unit and not by the compiler. Of 1 ± 2^-54
  // and 1 + 2^-53 (a tie), a directed mode rounds at least one to a neighbour of 1.
  volatile const double one = 1, below = 0x1p-54, tie = 0x1p-53, odd = 1 + 0x1p-52;
  const bool nearest = one + below == 1 && -one - below == -1 && one - below == 1;
  const bool ties_to_even = one + tie == 1 && odd + tie == 1 + 0x1p-51;
  volatile const double smallest_normal = 0x1p-1022, half = 0.5;
  const bool subnormals = smallest_normal * half != 0;
  if (nearest && ties_to_even && subnormals) return;
  invalid_input("require_round_to_nearest", "{}",
                subnormals
                    ? "this thread does not round to nearest, ties to even; restore it with "
                      "fesetround(FE_TONEAREST)"
                    : "this thread flushes subnormal numbers to zero; switch off FTZ and DAZ");
}

}  // namespace discreet::numerics
