#pragma once

#include <algorithm>
#include <span>
#include <unordered_set>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/numerics/sum.h"
#include "discreet/unlearning/capacity/stream_bounds.h"
#include "discreet/unlearning/engines/engine.h"

// Checks and bounds that all engines share.
namespace discreet::unlearning {

inline void require_new(const Engine& engine, RecordId id) {
  if (engine.holds(id)) {
    invalid_input("insert", "record {} is already in the model; delete it first or use another id",
                  id);
  }
}

inline void require_room(const char* op, const Engine& engine, std::uint64_t n_max) {
  if (engine.live() >= n_max) {
    invalid_input(op,
                  "{} records are live, the maximum that n_max allows; delete some or start with a "
                  "larger n_max",
                  engine.live());
  }
}

inline void require_live_batch(const Engine& engine, std::span<const RecordId> ids) {
  if (ids.empty()) {
    invalid_input("erase", "the batch is empty; name at least one record");
  }
  std::unordered_set<RecordId> seen;
  for (const RecordId id : ids) {
    if (!engine.holds(id)) {
      invalid_input("erase",
                    "record {} is not in the model: it was never inserted, or is already deleted",
                    id);
    }
    if (ids.size() > 1 && !seen.insert(id).second) {
      invalid_input("erase", "record {} is named twice; name it once", id);
    }
  }
}

// x scaled down until its exact norm is at most `radius`; unchanged if it already is.
inline std::vector<double> within(std::span<const double> x, double radius) {
  std::vector<double> scaled(x.begin(), x.end());
  for (double norm = numerics::norm_l2_upper(scaled); norm > radius;
       norm = numerics::norm_l2_upper(scaled)) {
    // First bring a norm that overflows into range.
    const double factor = norm < 0x1p1000 ? radius / norm * (1 - 0x1p-50) : 0x1p-600;
    for (double& v : scaled) v *= factor;
  }
  return scaled;
}

inline double label_within(const char* op, Loss loss, double y, double Y) {
  if (loss == Loss::kSquared) return std::clamp(y, -Y, Y);
  if (y != 1 && y != -1) {
    invalid_input(op, "the label is {}; the logistic loss needs -1 or 1", y);
  }
  return y;
}

}  // namespace discreet::unlearning
