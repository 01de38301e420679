#pragma once

namespace discreet::random {

// Throws kNanInSigma unless the noise scale is finite, kInvalidDpConfig if it is negative.
void require_scale(const char* op, const char* name, double scale);

}  // namespace discreet::random
