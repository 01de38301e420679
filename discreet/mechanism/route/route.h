#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/hash.h"
#include "discreet/config/config.h"
#include "discreet/layout/route_plan.h"
#include "discreet/mechanism/clip/clip_batch.h"
#include "discreet/mechanism/noise/budget_allocation.h"

namespace discreet::mechanism {

// Proof: route.md

// What a run knows about its records: public and fixed for the run (or a public epoch of it).
struct Routes {
  std::vector<RoutePlan> plans;  // one per class of records, at least one
  Injection injection = Injection::kPerStep;
  friend bool operator==(const Routes&, const Routes&) = default;
};
// SHA-256 over injection and plans.
Digest hash_of(const Routes& routes);

// Depth-selective routing: a record of class c, gradient g, adds to the sum
//   g'  = g on the coordinates that plan c permits, 0 elsewhere (not read);
//   g'' = each block of g' cut to norm (1 - theta_c) clip_b, then the whole to
//         (1 - theta_c) flat_clip,
// and N(0, s_b^2) falls on every coordinate of block b, whoever takes part. theta_c makes room for
// the rounding of the sum: two computed sums that differ in this record's payload being zeroed
// differ, in units of the noise, by at most 1 / m_c, m_c the effective multiplier of
// noise_of_use(plan c). The promise of the plan thus holds for what is released, not for real
// numbers only.
//
// A parameter that no plan permits receives nothing and no noise: layout() has it as public.
class Router {
 public:
  // layout: as the plans refer to it (public modules marked). Throws kInvalidInput as
  // check_route_plan, if there is no plan, and if plans disagree about the policy: a tensor is in
  // different blocks, or a block has different noise.
  Router(Routes routes, const ModelLayout& layout);
  ~Router();
  Router(Router&&) noexcept;

  // Fixes theta: rounding is what two sums may differ by beside the record, relative to the largest
  // clip bound of a block (summation_charge, sensitivity_factor - 1); 0 if sums are exact. Before
  // the first clip. False, and nothing changes, if a class would lose more than `most` of its
  // bound.
  bool charge(double rounding, double most);

  const Routes& routes() const noexcept;
  std::size_t classes() const noexcept;
  const ModelLayout& layout() const noexcept;
  // min_c m_c, rounded down: the multiplier of a release for whichever record is affected most.
  double noise_multiplier() const noexcept;
  double noise_multiplier(std::size_t c) const { return multipliers_.at(c); }  // m_c
  // One part per block, multipliers 1, C_b = s_b / noise_multiplier() rounded up: at sigma =
  // noise_multiplier() the noise drawn is s_b.
  const Allocation& allocation() const noexcept { return allocation_; }
  double theta(std::size_t c) const { return theta_.at(c); }

  // Clips every record of a microbatch by its plan and adds the results to `sum`, of layout().
  //   classes: one per record: < classes(), or kNoRoute
  //   grid: 0, or the step of discrete noise (clip_to_grid); then per-sample gradients only
  //   norm: kL1 for Laplace noise (clip_in_l1): bounds are of L1 norms; per-sample gradients and
  //   one
  //         block only
  // The norms are by block. Throws as clip(), `sum` unchanged; kInvalidInput for classes that do
  // not fit; kInvalidDpConfig for a mask that a backward pass has no axis for (give per-sample
  // gradients). A value that is not finite counts where the record may reach it only.
  RecordNorms clip(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                   const ClipOptions& options, double grid, Norm norm, GradientSum& sum) const;

  struct Tables;  // private: route_impl.h

 private:
  Routes routes_;
  std::vector<double> multipliers_;  // m_c
  std::vector<double> theta_;
  Allocation allocation_;
  std::unique_ptr<Tables> tables_;
};

// The configuration of a routed run: noise_multiplier as the routes have it. Throws
// kInvalidDpConfig, naming the key, for what would take bounds or noise from elsewhere: a schedule,
// adaptive bounds, maps, phases, released metrics, compression, noise 0; for an adjacency other
// than zero_out; for injection in several slots with a family that is not gaussian or skellam.
Config routed_config(Config resolved, const Routes& routes, const ModelLayout& layout);

}  // namespace discreet::mechanism
