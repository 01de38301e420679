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

// What a run knows about its records: public, and fixed for the run (or a public epoch of it).
struct Routes {
  std::vector<RoutePlan> plans;  // one per class of records, at least one
  Injection injection = Injection::kPerStep;
  friend bool operator==(const Routes&, const Routes&) = default;
};
// SHA-256 over injection and plans.
Digest hash_of(const Routes& routes);

// Depth-selective routing: a record of class c with gradient g adds to the sum
//   g'  = g on the coordinates that plan c permits, 0 elsewhere (not read);
//   g'' = each block of g' clipped to norm (1 - theta_c) clip_b, then the whole to
//         (1 - theta_c) flat_clip,
// and N(0, s_b^2) is added to every coordinate of block b, independent of the participating
// records. theta_c leaves room for the rounding of the sum: two computed sums that differ by
// zeroing this record's contribution differ, in units of the noise, by at most 1 / m_c, where m_c
// is the effective multiplier of noise_of_use(plan c). So the promise of the plan holds for the
// released floating-point numbers, not only for real numbers.
//
// A parameter that no plan permits receives neither gradient nor noise: layout() marks it public.
class Router {
 public:
  // layout: the one that the plans refer to (with public modules marked). Throws kInvalidInput as
  // check_route_plan does, if there is no plan, and if plans disagree about the policy: a tensor is
  // in different blocks, or a block has different noise.
  Router(Routes routes, const ModelLayout& layout);
  ~Router();
  Router(Router&&) noexcept;

  // Sets theta; call it before the first clip. rounding: the difference between two sums apart from
  // the record, relative to the largest clip bound of a block (summation_charge, sensitivity_factor
  // - 1); 0 if sums are exact. Returns false and changes nothing if a class would lose more than
  // `most` of its bound.
  bool charge(double rounding, double most);

  const Routes& routes() const noexcept;
  std::size_t classes() const noexcept;
  const ModelLayout& layout() const noexcept;
  // min_c m_c, rounded down: the multiplier of a release for the record that is affected the most.
  double noise_multiplier() const noexcept;
  double noise_multiplier(std::size_t c) const { return multipliers_.at(c); }  // m_c
  // One part per block, multipliers 1, C_b = s_b / noise_multiplier() rounded up: at sigma =
  // noise_multiplier() the noise is s_b.
  const Allocation& allocation() const noexcept { return allocation_; }
  double theta(std::size_t c) const { return theta_.at(c); }

  // Clips every record of a microbatch by its plan and adds the results to `sum`, of layout().
  //   classes: one per record: < classes(), or kNoRoute
  //   method: only its grid and norm are used; with kL1 the policy must have a single block
  // Returns norms by block. Throws as clip(), `sum` unchanged; kInvalidInput for invalid classes;
  // kInvalidDpConfig for a mask on an axis that a backward pass does not have (use per-sample
  // gradients). A value that is not finite counts only if the record may reach it.
  RecordNorms clip(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                   const ClipMethod& method, const ClipOptions& options, GradientSum& sum) const;

  struct Tables;  // private: route_impl.h

 private:
  Routes routes_;
  std::vector<double> multipliers_;  // m_c
  std::vector<double> theta_;
  Allocation allocation_;
  std::unique_ptr<Tables> tables_;
};

// The configuration of a routed run, with the noise_multiplier of the routes. Throws
// kInvalidDpConfig, naming the key, for settings that would take bounds or noise from elsewhere: a
// schedule, adaptive bounds, maps, phases, released metrics, compression, noise 0; for an adjacency
// other than zero_out; and for injection in several slots with a family other than gaussian or
// skellam.
Config routed_config(Config resolved, const Routes& routes, const ModelLayout& layout);

}  // namespace discreet::mechanism
