#pragma once

#include <cstdint>
#include <span>

#include "discreet/accounting/contour/contour_step_impl.h"

namespace discreet::accounting::contour {

// The location and density of the lattice for the integrals. All values come from ladders.
struct Contour {
  int order;        // c = ladder(order)
  int image_order;  // c' > c, bounds images to the right; c' = c: see mass_only
  int spacing;      // frequencies are t_j = j ladder(spacing)
  int cut;          // terms with t_j < ladder(cut) are summed, the others bounded
  Tolerance tolerance;
  friend bool operator==(const Contour&, const Contour&) = default;

  double c() const noexcept { return ladder(order); }
  double image_c() const noexcept { return ladder(image_order); }
  double dt() const noexcept { return ladder(spacing); }
  // Only the mass at c is needed, for Chernoff's bound: no terms, no images, no decay.
  bool mass_only() const noexcept { return image_order == order; }
  // The number J of terms besides that at t = 0: J dt >= ladder(cut), or 0 if mass_only.
  std::int64_t terms() const noexcept;
};

// For tests only: worsens one source of error at a time, so that its bound must cover it.
struct Spoil {
  double node_distance = 1;  // h is multiplied by this
  int spacing = 0;           // added to Contour::spacing: +4 halves R
  int cut = 0;               // added to Contour::cut: -2 multiplies J by 0.7
  double window = 1;         // window ends are multiplied by this
  bool any() const noexcept {
    return node_distance != 1 || spacing != 0 || cut != 0 || window != 1;
  }
};

// The contribution of one step to a composition on a given contour. All fields are additive: the
// value of the composition is the sum of count * contribution over its distinct steps.
enum Field : std::size_t {
  kLogMass,    // K^, an estimate of log M(c)
  kCentre,     // m, the centre of the loss
  kMassError,  // X_0: M(c) <= exp(K^ + X_0)
  kImageMass,  // upper bound of log M(c'); 0 if mass_only, as is kDecay
  kTilted,     // tilted mass outside the window / mass inside, times 2^density
  kTail,       // other probability outside the window, times 2^tail
  kNodes,      // number of nodes along x
  kUnfit,      // not 0 if the step cannot be evaluated on this contour
  kDecay,      // kPieces logs of bounds of |M(c + is)| / exp(K^ + X_0) for all s >= ladder(cut + i)
  kPieces = 12,
  kFirstTerm = kDecay + kPieces,
  // then for j = 1..J three numbers: log|phi_j|, arg phi_j, X_j, where phi_j estimates
  // M(c + i t_j) exp(-K^ - i t_j m) and |that - phi_j| <= |phi_j| (exp(X_j) - 1).
};
inline constexpr std::size_t kPerTerm = 3;

std::size_t contribution_size(const Contour& contour) noexcept;

// Each function fills `out`, of length contribution_size(contour), and returns the number of nodes
// along x.
std::int64_t contribute_subsampled(const CoarseGrid& grid, const Contour& contour,
                                   const Spoil& spoil, std::int64_t most_nodes,
                                   std::span<double> out);
void contribute_full_batch(double sigma, const Contour& contour, std::span<double> out) noexcept;
void contribute_explicit(double epsilon, const Contour& contour, std::span<double> out);

// Estimates of log M(c), for planning.
double full_batch_log_mass(double sigma, double c) noexcept;
double explicit_log_mass(double epsilon, double c) noexcept;

}  // namespace discreet::accounting::contour
