#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/mechanism/clip/clip_ranges_impl.h"

namespace discreet::mechanism {

// The coordinates of explicit gradients that each class of records reaches, in the layout used for
// processing: pieces of kPiece coordinates of a tensor.
class Reach {
 public:
  Reach() = default;
  Reach(Reach&&) = default;  // not copyable: masks are identified by address
  Reach& operator=(Reach&&) = default;
  //   ranges: disjoint; their parts are the cells, sets of coordinates that a class reaches
  //   entirely
  //     or not at all
  //   permitted: class, then cell
  Reach(const ModelLayout& layout, std::span<const CoordinateRange> ranges,
        std::span<const std::uint8_t> permitted, std::size_t classes);

  // Bit k of word w: whether the class reaches coordinate 32 w + k of the piece. Null: it reaches
  // none.
  const std::uint32_t* mask(std::uint32_t c, std::size_t tensor, std::size_t piece) const noexcept;

  // The cells of a tensor are numbered from 0.
  std::size_t cells(std::size_t tensor) const noexcept { return tensors_[tensor].cells; }
  bool permits(std::uint32_t c, std::size_t tensor, std::size_t cell) const noexcept {
    return permitted_[c * all_cells_ + tensors_[tensor].first_cell + cell] != 0;
  }
  // In ascending order; `set` is the cell.
  std::span<const kernels::Stripe> stripes(std::size_t tensor, std::size_t piece) const noexcept;

 private:
  struct Tensor {
    std::size_t first_cell = 0, cells = 0, pieces = 0;
    std::vector<kernels::Stripe> stripes;
    std::vector<std::size_t> first_stripe;  // of each piece; then the number of stripes
    // Class, then piece: the results of mask().
    std::vector<const std::uint32_t*> masks;
    std::vector<std::vector<std::uint32_t>> words;  // of the classes that reach a part of it
  };
  void add_stripes(Tensor& tensor, std::span<const CoordinateRange> ranges, std::size_t elements);
  void add_masks(Tensor& tensor, std::span<const CoordinateRange> ranges, std::size_t elements,
                 std::size_t c);

  std::vector<std::uint8_t> permitted_;
  std::size_t all_cells_ = 0;
  std::vector<Tensor> tensors_;
};

// Fills norms.scales of the records [first, end) from their norms; must not throw.
using DecideScales = std::function<void(std::size_t first, std::size_t end, RecordNorms& norms)>;

// As clip_per_sample, but coordinates that a record may not reach count as 0, whatever they are,
// and the scales are decided elsewhere. Norms and scales are bit for bit those of a record with
// zeros there; nothing is added to unreached coordinates.
//   partition: of the tensors that some class reaches
//   classes: one per record; kNoRoute: it reaches nothing
// A record that is not finite in a coordinate it may reach is treated according to
// options.nonfinite.
template <class Real>
RecordNorms clip_reached(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                         const Partition& partition, const Reach& reach,
                         std::span<const std::uint32_t> classes, const ClipOptions& options,
                         const DecideScales& decide, GradientSum& sum);
// Only the norms, without scales.
template <class Real>
RecordNorms reached_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                          const Partition& partition, const Reach& reach,
                          std::span<const std::uint32_t> classes, const ClipOptions& options);

}  // namespace discreet::mechanism
