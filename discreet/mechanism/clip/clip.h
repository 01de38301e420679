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

// Clipping bounds the contribution of a record: part g of its gradient is multiplied by
//   s_g = min(1, C_g / (n_g + EPS_CLIP)),   n_g >= ||gradient_g||_2,
// so that its norm is at most C_g. An additional flat bound C multiplies all parts by
//   s   = min(1, C / (n + EPS_CLIP)),       n >= sqrt(sum_g (s_g n_g)^2).
// n_g is an upper bound of the exact norm in binary64, never below it; s_g is rounded down.

inline constexpr double kEpsClip = 1e-8;    // EPS_CLIP of the specification
inline constexpr double kEpsDenom = 1e-12;  // EPS_DENOM: the smallest denominator of a ratio
// EPS_EQ: numbers that differ by at most this are approximately equal. For comparing reports; no
// budget or bound depends on it.
inline constexpr double kEpsEq = 1e-10;
constexpr bool approximately_equal(double a, double b) noexcept {
  return a - b <= kEpsEq && b - a <= kEpsEq;
}

// The norm of a bound: L2 for Gaussian and related noise, L1 for Laplace noise.
enum class Norm : std::uint8_t { kL2, kL1 };

// What is clipped, and to which norms.
struct ClipPlan {
  Partition partition;
  std::vector<double> clip;         // C_g, one per part: finite, > 0
  std::optional<double> flat_clip;  // C over all parts (hybrid): finite, > 0
};

// How to treat a record whose gradient contains a NaN or an infinity.
enum class Nonfinite : std::uint8_t {
  kAbort,  // kInvalidGradient; nothing is added. One record can stop the run, which leaks
  kZero,   // the record contributes zero and is counted, confidentially
};

struct ClipOptions {
  Nonfinite nonfinite = Nonfinite::kAbort;
  std::size_t max_microbatch = 256;  // records processed at once, >= 1
  int threads = 1;                   // does not affect results
  // Ghost and fused: the products of at most this many records are added in binary32 before they
  // are merged in binary64; 1 to 256. 0: all in binary64. See sensitivity_factor in ghost.h.
  std::size_t binary32_records = 128;
};

// The norms and scales of each record; confidential. Row-major: record, then part.
struct RecordNorms {
  std::size_t records = 0;
  std::size_t parts = 0;
  std::vector<double> norms;         // n_g; 0 for a zeroed record
  std::vector<double> scales;        // the factor applied to part g, including the flat bound
  std::vector<std::uint8_t> zeroed;  // one per record: 1 if it was not finite

  double norm(std::size_t record, std::size_t part) const { return norms[record * parts + part]; }
  double scale(std::size_t record, std::size_t part) const { return scales[record * parts + part]; }
};

// The s of the definition, rounded down; 0 for a norm that overflowed to +inf. norm >= 0; clip
// finite and > 0. Every scale of this library is decided here.
//   stability: finite and > 0, selects automatic clipping (Bu et al. 2023):
//   C / (norm + stability), not limited to 1; the norm of the product stays below C.
double clip_scale(double norm, double clip,
                  std::optional<double> stability = std::nullopt) noexcept;

// An upper bound of sqrt(sum_k norms_k^2), the norm of several pieces together: never below it,
// above it by at most a factor 1 + (2k + 5) 2^-52 for k norms. +inf if a norm is infinite or the
// result overflows. norms_k >= 0, in ascending order of the pieces.
double norm_from_above(std::span<const double> norms) noexcept;

// Fills norms.scales from the norms by the definition above. Throws kInvalidDpConfig if a bound of
// the plan is not finite and positive, or if their number differs from that of the parts.
//   stability: of clip_scale(); the plan then has no flat bound
void decide_scales(const ClipPlan& plan, RecordNorms& norms,
                   std::optional<double> stability = std::nullopt);

}  // namespace discreet::mechanism
