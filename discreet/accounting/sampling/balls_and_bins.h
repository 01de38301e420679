#pragma once

#include <cstdint>
#include <span>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Balls-and-bins, also called random allocation: in each epoch every record is put into one of
// `batches` batches, uniformly and independently of the others and of earlier epochs; each batch
// releases the sum of its clipped gradients plus Gaussian noise of sigma times the clip norm.
// The epoch is the atomic event: sigma is constant inside it and no batch is released alone.
//
// With V = exp(Z / sigma - 1 / (2 sigma^2)), Z standard normal, and M the mean of `batches` copies
// of V, the worst case over all adaptive gradients is attained and is
//   remove: delta(epsilon) = E(M_1 ... M_E - e^epsilon)+
//   add:    delta(epsilon) = E(1 - e^epsilon M_1 ... M_E)+
// over all epochs. Adjacency: add or remove one record, which is also zero-out of one record; there
// is no bound here for replace-one.
//
// Every result is an interval that contains the exact value: discretisation, truncation, the
// transform's round-off and all floating-point arithmetic are inside it.
// Proof: balls_and_bins.md
struct AllocationEpochs {
  double sigma;           // noise standard deviation / clip norm, in [0.1, 1000]
  std::uint64_t batches;  // t, in [1, 2^24]
  std::uint64_t epochs;   // E, in [1, 2^32]: how many such epochs
};

// The epsilon at which delta(epsilon) = delta, or 0 if delta(0) <= delta.
// epochs:         not empty; the epochs may come in any order.
// delta:          in [1e-100, 1).
// relative_width: asked of the result, upper - lower <= relative_width * max(upper, 0.1), in
//                 [1e-6, 1]. Where arithmetic or memory does not allow it the interval is wider,
//                 and still true; upper may be infinite.
// Throws kInvalidDpConfig if an argument is outside its range.
Interval allocation_epsilon(std::span<const AllocationEpochs> epochs, double delta,
                            Direction direction, double relative_width);

// The worse of both directions, that is add/remove adjacency; costs little more than one.
Interval allocation_epsilon(std::span<const AllocationEpochs> epochs, double delta,
                            double relative_width);

// delta(epsilon). epsilon: in [0, 1e6]. relative_width: as above, of the smaller of delta and
// 1 - delta; below about 1e-50 the interval may be [0, small].
Interval allocation_delta(std::span<const AllocationEpochs> epochs, double epsilon,
                          Direction direction, double relative_width);

}  // namespace discreet::accounting
