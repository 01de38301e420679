#pragma once

#include <deque>

#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip_ranges_impl.h"
#include "discreet/mechanism/clip/reach_impl.h"
#include "discreet/mechanism/route/route.h"

namespace discreet::mechanism {

// Parts of the parameters that are permitted or not as a whole: whole tensors for backward passes;
// for per-sample gradients, the sets of coordinates of a tensor that the same classes permit.
struct RoutedParts {
  std::vector<std::uint32_t> block;                   // one per part
  std::vector<std::uint8_t> permitted;                // class, then part
  std::vector<std::vector<std::uint32_t>> of_blocks;  // the parts of each block

  std::size_t parts() const noexcept { return block.size(); }
  Permits permits(std::span<const std::uint32_t> classes) const {
    return {classes, permitted, parts()};
  }
};

struct Router::Tables {
  ModelLayout layout{{}};
  std::size_t classes = 0;
  std::vector<double> stddev;   // by block: s_b
  std::vector<double> largest;  // by block: the largest bound of all classes
  // Bounds with room for rounding: class, then block; 0 if the class does not reach the block;
  // +infinity: no flat bound.
  std::vector<double> clip;
  std::vector<double> flat;
  std::vector<std::vector<const RouteTensor*>> at;  // class, tensor: null if not permitted
  RoutedParts cells;
  std::vector<CoordinateRange> ranges;  // ranges of the cells
  Reach reach;                          // the same, in the form used for explicit gradients
  RoutedParts whole_blocks;
  Partition partition;  // into blocks, of the tensors that some class reaches
  RoutedParts tensors;
  ClipPlan tensor_plan;  // parts are private tensors; bounds are the largest of their block

  std::size_t blocks() const noexcept { return stddev.size(); }
  // The mask of class c along an axis of a tensor: 1 where permitted; empty: permitted everywhere.
  std::vector<std::uint8_t> axis_mask(std::size_t c, std::size_t tensor, std::size_t axis) const;
};

// Passes in which the entries that a mask forbids a record are zero. Borrows passes without masks.
template <class Real>
struct MaskedPass {
  BackwardPass<Real> pass;
  std::deque<std::vector<Real>> owned;
};
template <class Real>
MaskedPass<Real> masked(const Router::Tables& tables, const BackwardPass<Real>& pass,
                        std::span<const std::uint32_t> classes);

}  // namespace discreet::mechanism
