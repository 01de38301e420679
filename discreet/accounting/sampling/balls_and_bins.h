#pragma once

#include <cstdint>
#include <span>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Balls-and-bins, also called random allocation: in each epoch, every record is assigned to one of
// `batches` batches, uniformly and independently of other records and of earlier epochs. Each batch
// releases the sum of its clipped gradients plus Gaussian noise of sigma times the clip norm. The
// epoch is the atomic event: sigma is constant within it, and no batch is released alone.
//
// With V = exp(Z / sigma - 1 / (2 sigma^2)), Z standard normal, and M the mean of `batches` copies
// of V, the worst case over all adaptive gradients is attained and is
//   remove: delta(epsilon) = E(M_1 ... M_E - e^epsilon)+
//   add:    delta(epsilon) = E(1 - e^epsilon M_1 ... M_E)+
// over all epochs. Adjacency: add or remove one record, which here equals zero-out of one record.
// There is no bound for replace-one.
//
// Every result is an interval that contains the exact value; it includes the errors of
// discretisation, truncation, the transform and all floating-point arithmetic.
// Proof: balls_and_bins.md
struct AllocationEpochs {
  double sigma;           // noise standard deviation / clip norm, in [0.1, 1000]
  std::uint64_t batches;  // t, in [1, 2^24]
  std::uint64_t epochs;   // E, in [1, 2^32]: the number of such epochs
};

// The epsilon at which delta(epsilon) = delta, or 0 if delta(0) <= delta.
// epochs:         not empty, in any order.
// delta:          in [1e-100, 1).
// relative_width: in [1e-6, 1], requests upper - lower <= relative_width * max(upper, 0.1). If
//                 arithmetic or memory does not allow it, the interval is wider but still
//                 contains the value; upper may be infinite.
// Throws kInvalidDpConfig if an argument is outside its range.
Interval allocation_epsilon(std::span<const AllocationEpochs> epochs, double delta,
                            Direction direction, double relative_width);

// The worse of both directions: add/remove adjacency. Costs little more than one direction.
Interval allocation_epsilon(std::span<const AllocationEpochs> epochs, double delta,
                            double relative_width);

// delta(epsilon). epsilon: in [0, 1e6]. relative_width: as above, relative to the smaller of delta
// and 1 - delta; below about 1e-50 the interval may be [0, small].
Interval allocation_delta(std::span<const AllocationEpochs> epochs, double epsilon,
                          Direction direction, double relative_width);

}  // namespace discreet::accounting
