#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/clip/clip_groups_impl.h"
#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/mechanism/clip/reach_impl.h"

namespace discreet::mechanism {

// Records and the coordinates that each may reach.
struct Reached {
  const Reach& reach;
  std::span<const std::uint32_t> classes;
};

// The shared work of all threads. Each processes the same schedule on its own share of the pieces;
// between two barriers, the first thread decides norms and scales.
template <class Real>
class Team {
 public:
  Team(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
       const ClipOptions& options, std::vector<Group> groups, GradientSum* sum,
       const Reached* reached = nullptr)
      : layout_(layout),
        gradients_(gradients),
        options_(options),
        groups_(std::move(groups)),
        sum_(sum),
        reached_(reached),
        shares_(shares(layout, gradients, options)),
        barrier_(static_cast<std::ptrdiff_t>(shares_)),
        scratch_(shares_) {
    std::size_t pieces = 0, most = 0, cells = 0;
    for (Group& group : groups_) {
      group.window = std::clamp<std::size_t>(group.window, 1, options.max_microbatch);
      pieces = std::max(pieces, group.pieces.size());
      most = std::max(most, group.pieces.size() * std::min(group.window, gradients.records));
      if (reached != nullptr)
        for (const Piece& piece : group.pieces)
          cells = std::max(cells, reached->reach.cells(piece.tensor));
    }
    piece_norms_.resize(most);
    for (Scratch& own : scratch_) {  // no allocation, hence no failure, inside a thread
      own.norms.reserve(pieces);
      own.rows.resize(cells * kRows);
      own.scales.resize(cells * kRows);
      own.sets.resize(cells);
      if (reached != nullptr && std::is_same_v<Real, double>) own.masked.resize(kPiece);
    }
  }

  // Calls f(share) from every thread, or from none if not all can be started.
  template <class F>
  void run(F f) {
    std::atomic<int> go = 0;
    std::vector<std::jthread> others;
    others.reserve(shares_ - 1);
    const auto decide_to = [&](int what) {
      go = what;
      go.notify_all();
    };
    try {
      for (std::size_t share = 1; share < shares_; ++share)
        others.emplace_back([&go, f, share] {
          go.wait(0);
          if (go == 1) f(share);
        });
    } catch (...) {
      decide_to(-1);
      throw;
    }
    decide_to(1);
    f(std::size_t{0});
  }

  // The norms of every record, group by group; NaN if the part of the record is not finite.
  void measure(std::size_t share, RecordNorms& norms) {
    for (const Group& group : groups_)
      for (std::size_t first = 0; first < gradients_.records; first += group.window)
        measure(share, group, first, window_end(group, first), norms);
  }

  void accumulate(std::size_t share, const RecordNorms& decided) {
    for (const Group& group : groups_) accumulate(share, group, 0, gradients_.records, decided);
  }

  // Both, while the records of a window are in the cache. Stops at the first record whose part or
  // norms are not finite; then returns false and the sum is unchanged.
  //   decide(group, first, end): fills the scales of these records and parts.
  template <class Decide>
  bool measure_and_accumulate(Decide decide, RecordNorms& norms) {
    if (steps() > 1) before_ = std::make_unique_for_overwrite<double[]>(sum_->values().size());
    bool finite = true;
    std::size_t begun = 0;
    run([&](std::size_t share) {
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        Group& group = groups_[g];
        for (std::size_t first = 0; first < gradients_.records; first += group.window) {
          const std::size_t end = window_end(group, first);
          measure(share, group, first, end, norms);
          if (share == 0) {
            finite = all_numbers(group, first, end, norms);
            if (finite) decide(group, first, end);
          }
          barrier_.arrive_and_wait();
          if (!finite) return;
          if (share == 0) begun = g + 1;
          if (first == 0 && before_) remember(share, group);
          accumulate(share, group, first, end, norms);
        }
      }
    });
    if (!finite && before_)
      for (std::size_t g = 0; g < begun; ++g)
        for (const Piece& piece : groups_[g].pieces) {
          const std::span<double> target = sum_of(piece);
          if (piece.was_zero)
            std::fill(target.begin(), target.end(), 0.0);
          else
            std::copy_n(before_.get() + offset_of(target), target.size(), target.data());
        }
    return finite;
  }

 private:
  static constexpr std::size_t kRows = 64;  // rows passed to a kernel at once
  struct Scratch {
    std::vector<double> norms;  // of a part
    // By cell of a tensor: the records that reach it.
    std::vector<const Real*> rows;
    std::vector<double> scales;
    std::vector<kernels::RowSet<Real>> sets;
    std::vector<Real> masked;
  };
  static constexpr std::uint64_t kSmallestShare = std::uint64_t{1} << 20;  // values worth a thread

  static std::size_t shares(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                            const ClipOptions& options) {
    const std::uint64_t values = layout.private_parameters() * gradients.records;
    const std::uint64_t most = std::max<std::uint64_t>(1, values / kSmallestShare);
    return static_cast<std::size_t>(std::clamp<std::uint64_t>(
        static_cast<std::uint64_t>(std::max(1, options.threads)), 1, most));
  }
  std::size_t steps() const {
    std::size_t count = 0;
    for (const Group& group : groups_)
      count += (gradients_.records + group.window - 1) / group.window;
    return count;
  }
  std::size_t window_end(const Group& group, std::size_t first) const {
    return std::min(gradients_.records, first + group.window);
  }
  const Real* row(const Piece& piece, std::size_t record) const {
    return gradients_.tensors[piece.tensor].data() + record * layout_.elements(piece.tensor) +
           piece.begin;
  }
  std::span<double> sum_of(const Piece& piece) const {
    return sum_->tensor(piece.tensor).subspan(piece.begin, piece.end - piece.begin);
  }
  std::size_t offset_of(std::span<double> target) const {
    return static_cast<std::size_t>(target.data() - sum_->values().data());
  }
  // The range of pieces that a thread processes: first, and one past the last.
  std::pair<std::size_t, std::size_t> pieces_of(const Group& group, std::size_t share) const {
    const std::size_t count = group.pieces.size();
    return {count * share / shares_, count * (share + 1) / shares_};
  }

  void measure(std::size_t share, const Group& group, std::size_t first, std::size_t end,
               RecordNorms& norms) {
    const std::size_t records = end - first;
    const auto [begin, last] = pieces_of(group, share);
    for (std::size_t p = begin; p < last; ++p) {
      const Piece& piece = group.pieces[p];
      double* out = piece_norms_.data() + p * records;
      const Real* rows[kRows];
      for (std::size_t r = 0; r < records; r += kRows) {
        const std::size_t count = std::min(kRows, records - r);
        if (reached_ != nullptr) {
          reached_norms(scratch_[share], piece, first + r, count, out + r);
          continue;
        }
        for (std::size_t k = 0; k < count; ++k) rows[k] = row(piece, first + r + k);
        kernels::norms_from_above(rows, count, piece.end - piece.begin, out + r);
      }
    }
    barrier_.arrive_and_wait();
    // The records of the window are distributed too, because a model has many pieces.
    std::vector<double>& together = scratch_[share].norms;
    for (std::size_t r = records * share / shares_; r < records * (share + 1) / shares_; ++r) {
      std::size_t p = 0;
      for (std::uint32_t part = group.first_part; part < group.end_part; ++part) {
        together.clear();
        for (; p < group.pieces.size() && group.pieces[p].part == part; ++p)
          together.push_back(piece_norms_[p * records + r]);
        const bool finite = std::none_of(together.begin(), together.end(),
                                         [](double norm) { return std::isnan(norm); });
        norms.norms[(first + r) * norms.parts + part] =
            finite ? norm_from_above(together) : std::numeric_limits<double>::quiet_NaN();
      }
    }
    barrier_.arrive_and_wait();
  }

  // 0 for records that do not reach the piece.
  void reached_norms(Scratch& own, const Piece& piece, std::size_t first, std::size_t count,
                     double* out) const {
    const std::size_t n = piece.end - piece.begin;
    const Real* rows[kRows];
    const std::uint32_t* masks[kRows];
    std::size_t of[kRows];
    double found[kRows];
    std::size_t k = 0;
    std::fill_n(out, count, 0.0);
    for (std::size_t r = 0; r < count; ++r) {
      const std::uint32_t c = reached_->classes[first + r];
      if (c == kNoRoute) continue;
      masks[k] = reached_->reach.mask(c, piece.tensor, piece.begin / kPiece);
      if (masks[k] == nullptr) continue;
      rows[k] = row(piece, first + r);
      of[k++] = r;
    }
    if constexpr (std::is_same_v<Real, float>) {
      kernels::masked_norms_from_above(rows, masks, k, n, found);
    } else {
      for (std::size_t r = 0; r < k; ++r) {
        for (std::size_t i = 0; i < n; ++i)
          own.masked[i] = (masks[r][i / 32] >> (i % 32) & 1) != 0 ? rows[r][i] : 0.0;
        const Real* masked = own.masked.data();
        kernels::norms_from_above(&masked, 1, n, found + r);
      }
    }
    for (std::size_t r = 0; r < k; ++r) out[of[r]] = found[r];
  }

  bool all_numbers(const Group& group, std::size_t first, std::size_t end,
                   const RecordNorms& norms) const {
    for (std::size_t i = first; i < end; ++i)
      for (std::uint32_t part = group.first_part; part < group.end_part; ++part)
        if (std::isnan(norms.norm(i, part))) return false;
    return true;
  }

  // Saves what is needed to restore the sum. An empty sum, the usual case, needs no copy.
  void remember(std::size_t share, Group& group) {
    const auto [begin, end] = pieces_of(group, share);
    for (std::size_t p = begin; p < end; ++p) {
      Piece& piece = group.pieces[p];
      const std::span<double> target = sum_of(piece);
      std::uint64_t bits = 0;
      for (const double value : target) bits |= std::bit_cast<std::uint64_t>(value);
      piece.was_zero = bits == 0;
      if (!piece.was_zero)
        std::copy(target.begin(), target.end(), before_.get() + offset_of(target));
    }
  }

  void accumulate(std::size_t share, const Group& group, std::size_t first, std::size_t end,
                  const RecordNorms& decided) {
    const auto [begin, last] = pieces_of(group, share);
    for (std::size_t p = begin; p < last; ++p)
      for (std::size_t i = first; i < end; i += kRows) {
        if (reached_ != nullptr)
          add_reached(scratch_[share], group.pieces[p], i, std::min(end, i + kRows), decided);
        else
          add(group.pieces[p], i, std::min(end, i + kRows), decided);
      }
  }

  void add(const Piece& piece, std::size_t first, std::size_t end, const RecordNorms& decided) {
    const Real* rows[kRows];
    double scales[kRows];
    std::size_t count = 0;
    for (std::size_t i = first; i < end; ++i) {
      const double scale = decided.scale(i, piece.part);
      if (scale == 0) continue;  // 0 times an infinity is not 0
      rows[count] = row(piece, i);
      scales[count++] = scale;
    }
    kernels::add_rows(rows, scales, count, 0, piece.end - piece.begin, sum_of(piece).data());
  }

  void add_reached(Scratch& own, const Piece& piece, std::size_t first, std::size_t end,
                   const RecordNorms& decided) {
    const Reach& reach = reached_->reach;
    for (std::size_t cell = 0; cell < reach.cells(piece.tensor); ++cell) {
      const Real** rows = own.rows.data() + cell * kRows;
      double* scales = own.scales.data() + cell * kRows;
      std::size_t count = 0;
      for (std::size_t i = first; i < end; ++i) {
        const std::uint32_t c = reached_->classes[i];
        const double scale = decided.scale(i, piece.part);
        if (scale == 0 || c == kNoRoute || !reach.permits(c, piece.tensor, cell)) continue;
        rows[count] = row(piece, i) - piece.begin;
        scales[count++] = scale;
      }
      own.sets[cell] = {rows, scales, count};
    }
    const auto stripes = reach.stripes(piece.tensor, piece.begin / kPiece);
    kernels::add_stripes(own.sets.data(), stripes.data(), stripes.size(),
                         sum_->tensor(piece.tensor).data());
  }

  const ModelLayout& layout_;
  const PerSampleGradients<Real>& gradients_;
  const ClipOptions& options_;
  std::vector<Group> groups_;
  GradientSum* sum_;
  const Reached* reached_;  // null: every record reaches everything
  std::size_t shares_;
  std::barrier<> barrier_;
  std::vector<double> piece_norms_;  // of a window: piece, then record
  std::unique_ptr<double[]> before_;
  std::vector<Scratch> scratch_;  // one per thread
};

}  // namespace discreet::mechanism
