#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "discreet/layout/gradients.h"
#include "discreet/layout/layout.h"

namespace discreet::mechanism {

// Proof: clip.md

// Clipping makes the contribution of a record bounded: the part g of its gradient is multiplied by
//   s_g = min(1, C_g / (n_g + EPS_CLIP)),   n_g >= ||gradient_g||_2,
// so that its norm is at most C_g; a flat bound C beside it multiplies all parts by
//   s   = min(1, C / (n + EPS_CLIP)),       n >= sqrt(sum_g (s_g n_g)^2).
// n_g is an upper bound of the exact norm in binary64, never below it; s_g is rounded down.

inline constexpr double kEpsClip = 1e-8;    // the specification's EPS_CLIP
inline constexpr double kEpsDenom = 1e-12;  // EPS_DENOM: the least denominator of a ratio
// EPS_EQ: numbers that differ by no more are approximately equal. For comparisons of reports; no
// budget or bound is decided by it.
inline constexpr double kEpsEq = 1e-10;
constexpr bool approximately_equal(double a, double b) noexcept {
  return a - b <= kEpsEq && b - a <= kEpsEq;
}

// The norm that a bound is of: L2 for Gaussian noise and its kin, L1 for Laplace noise.
enum class Norm : std::uint8_t { kL2, kL1 };

// What is cut, and to which norms.
struct ClipPlan {
  Partition partition;
  std::vector<double> clip;         // C_g, one per part: finite, > 0
  std::optional<double> flat_clip;  // C over all parts (hybrid): finite, > 0
};

// What becomes of a record whose gradient has a NaN or an infinity.
enum class Nonfinite : std::uint8_t {
  kAbort,  // kInvalidGradient; nothing is added. One record can stop the run: a channel.
  kZero,   // the record contributes zero and is counted, confidentially
};

struct ClipOptions {
  Nonfinite nonfinite = Nonfinite::kAbort;
  std::size_t max_microbatch = 256;  // records at a time, >= 1
  int threads = 1;                   // results do not depend on it
  // Ghost and fused: products of so many records at most are added in binary32 before they are
  // merged in binary64, 1 to 256; 0: all in binary64. See sensitivity_factor in ghost.h.
  std::size_t binary32_records = 128;
};

// What was seen of each record; confidential. Row-major: record, then part.
struct RecordNorms {
  std::size_t records = 0;
  std::size_t parts = 0;
  std::vector<double> norms;         // n_g; 0 for a record that was zeroed
  std::vector<double> scales;        // what part g was multiplied by, flat bound included
  std::vector<std::uint8_t> zeroed;  // one per record: 1 if it was not finite

  double norm(std::size_t record, std::size_t part) const { return norms[record * parts + part]; }
  double scale(std::size_t record, std::size_t part) const { return scales[record * parts + part]; }
};

// The s of the definition, rounded down: 0 <= norm, clip finite and > 0. A norm that overflowed to
// +inf has scale 0.
double clip_scale(double norm, double clip) noexcept;

// An upper bound of sqrt(sum_k norms_k^2), the norm of what the pieces make together: never below
// it, at most a factor 1 + (2k + 5) 2^-52 above for k norms. +inf if one is or the result
// overflows. norms_k >= 0, in ascending order of the pieces.
double norm_from_above(std::span<const double> norms) noexcept;

// From norms to scales: fills norms.scales by the definition above. Throws kInvalidDpConfig if a
// bound of the plan is not finite and positive, or their number is not that of the parts.
void decide_scales(const ClipPlan& plan, RecordNorms& norms);

}  // namespace discreet::mechanism
