#pragma once

// Every number this library certifies assumes binary64 arithmetic as IEEE 754 defines it: each
// operation is rounded separately, to nearest, ties to even. Fast-math would silently violate that,
// so a translation unit that includes a numerics header does not compile with it.
#if defined(__FAST_MATH__)
#error "discreet cannot be compiled with -ffast-math: it would change certified results."
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "discreet needs binary64 arithmetic without excess precision; use SSE2 on x86."
#endif

namespace discreet::numerics {

// Throws kInvalidInput unless the calling thread rounds to nearest, ties to even, and keeps
// subnormal numbers. A host program can change both per thread, and results would no longer be
// certified. Takes a few nanoseconds.
void require_round_to_nearest();

}  // namespace discreet::numerics
