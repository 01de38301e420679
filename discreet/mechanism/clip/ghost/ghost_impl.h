#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/clip/clip_ranges_impl.h"
#include "discreet/mechanism/clip/ghost/outer_sum_impl.h"
#include "discreet/numerics/parallel.h"

namespace discreet::mechanism {

// Calls f(begin, end) on contiguous ranges that together cover [0, units), on at most `threads`
// threads. `cost` is that of all units in arithmetic operations: below 2^18 a thread is not worth
// starting. If calls throw, the exception of the lowest range is rethrown at the end.
template <class F>
void in_shares(std::size_t units, double cost, int threads, F f) {
  const auto worth = static_cast<std::size_t>(std::clamp(cost * 0x1p-18, 1.0, 1024.0));
  const auto useful = std::min(worth, static_cast<std::size_t>(std::max(threads, 1)));
  numerics::parallel_items(units, static_cast<int>(useful), f);
}

// Upper bounds for one tensor's gradient of one record: of its norm, and of the terms that it sums
// (the L of ghost.md).
struct Bound {
  double norm = 0;
  double terms = 0;
};

// The buffers of a thread that computes norms; the largest is one record's unfolded input.
template <class Real>
struct NormScratch {
  OuterScratch outer;
  std::vector<double> x_norms, y_norms;  // of the rows
  std::vector<double> tile, other_tile;
  std::vector<Real> unfolded, transposed;
  std::vector<std::pair<std::int64_t, std::size_t>> order;
};

// The bounds of record i's gradient of the layer's tensors, in the order weight (or scale), bias
// (or shift); tensors that are absent or not private are skipped. Sets `wide` if the record is
// unsuitable for products in binary32. The inputs must be finite.
template <class Real>
std::array<Bound, 2> record_bounds(const ModelLayout& layout, const LayerPass<Real>& pass,
                                   std::size_t i, NormScratch<Real>& scratch, bool& wide);

// A sum to which the gradients of layers are added. If its zeros are not written yet, they are
// written when something is added to a tensor, or the first terms are written instead. Until
// finish, the sum as a whole stays unwritten: if something fails, nothing was added.
class Target {
 public:
  explicit Target(GradientSum& sum)
      : sum_(sum), written_(sum.tensors(), sum.is_written() ? 1 : 0) {}
  double* tensor(std::size_t i) {
    if (std::exchange(written_[i], 1) == 0) std::ranges::fill(sum_.tensor(i), 0.0);
    return sum_.tensor(i).data();
  }
  // True if the tensor is still unwritten. The caller must then write all of it, at tensor(i).
  bool take_unwritten(std::size_t i) { return std::exchange(written_[i], 1) == 0; }
  void finish() {
    for (std::size_t i = 0; i < written_.size(); ++i) tensor(i);
    sum_.set_written();
  }

 private:
  GradientSum& sum_;
  std::vector<std::uint8_t> written_;
};

// The state of clipping one microbatch.
template <class Real>
struct Ghost {
  const char* operator_name;
  const ModelLayout& layout;
  const BackwardPass<Real>& pass;
  const ClipPlan& plan;
  const ClipOptions& options;
  // The parts that each record may reach; null: all. Layers it may not reach are not read.
  const Permits* permits = nullptr;
  RecordNorms norms = {};
  std::vector<std::uint8_t> wide = {};  // layers x records: unsuitable for products in binary32

  // Checks passes, plan, options and sum; no record has a norm or a scale yet.
  void begin(const GradientSum& sum);
  // Marks the records that are not finite in some layer, or throws kInvalidGradient for the first.
  void find_nonfinite();
  // Adds the norms of layer l to those of its parts; treats values that are not finite the same
  // way.
  void measure(std::size_t l);
  // target += the gradients of layer l, scaled.
  void add(std::size_t l, Target& target) const;

 private:
  bool has_private(std::size_t l) const;
  bool reaches(std::size_t record, const std::optional<std::size_t>& tensor) const;
  bool finite(std::size_t l, std::size_t record) const;
  void refuse_nonfinite(std::size_t l) const;
};

// The tensors of a pass, weight (or scale) first, then bias (or shift).
template <class Real>
std::array<std::optional<std::size_t>, 2> tensors_of(const LayerPass<Real>& pass);

// One line of the unfolded input per output position: [positions][channels][kh][kw] of a group.
template <class Real>
void unfold(const ConvolutionPass<Real>& pass, const ConvolutionShape& shape, std::size_t record,
            std::size_t group, std::vector<Real>& out);

// target += the gradients of the pass's private tensors, with record i multiplied by the scale of
// their part.
//   wide: one per record: do not multiply in binary32.
template <class Real>
void add_scaled(const ModelLayout& layout, const LayerPass<Real>& pass, const RecordNorms& norms,
                std::span<const std::uint8_t> wide, const ClipPlan& plan,
                const ClipOptions& options, Target& target);

// sqrt(a^2 + b^2) from above.
double hypotenuse_upper(double a, double b) noexcept;

}  // namespace discreet::mechanism
