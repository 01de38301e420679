#include "discreet/mechanism/clip_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip_kernels_impl.h"
#include "discreet/mechanism/clip_ranges_impl.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/strict_arithmetic.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "ClipPerSample_v1";

}  // namespace

template <class Real>
void check_gradients(const ModelLayout& layout, const PerSampleGradients<Real>& gradients) {
  if (gradients.tensors.size() != layout.size())
    throw Error(
        ErrorCode::kInvalidGradient, kOperator,
        fmt::format("gradients of {} tensors for a layout of {}; give one span per tensor, empty "
                    "where it is not private",
                    gradients.tensors.size(), layout.size()));
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const std::uint64_t elements = layout.elements(i);
    const std::uint64_t given = gradients.tensors[i].size();
    const bool fits =
        elements == 0 ? given == 0 : given % elements == 0 && given / elements == gradients.records;
    if (!fits)
      throw Error(ErrorCode::kInvalidGradient, kOperator,
                  fmt::format("tensor {} has {} values; {} records of {} elements are needed",
                              layout.tensors()[i].name, given, gradients.records, elements));
  }
}

template void check_gradients(const ModelLayout&, const PerSampleGradients<float>&);
template void check_gradients(const ModelLayout&, const PerSampleGradients<double>&);

namespace {

constexpr std::size_t kPiece = 16384;  // coordinates: the unit of a norm and of a thread's work
constexpr std::size_t kRows = 64;      // rows handed to a kernel at once
constexpr std::size_t kShort = 256;    // coordinates: pieces below it are measured together,
constexpr std::size_t kPack = 4096;    // so many coordinates at once
// Bytes of gradients that are read a second time from a thread's second cache, or from the third,
// of which a thread may count on this much.
constexpr std::size_t kSecondCache = std::size_t{1} << 20;
constexpr std::size_t kThirdCache = std::size_t{8} << 20;
constexpr std::size_t kFewest = 4;                                // records the kernel adds at once
constexpr std::uint64_t kSmallestShare = std::uint64_t{1} << 20;  // values worth a thread

// Coordinates [begin, end) of a tensor; all of one part.
struct Piece {
  std::size_t tensor;
  std::size_t begin;
  std::size_t end;
  std::uint32_t part;
  bool was_zero = false;  // every bit of its sum, before the first record
  // How many pieces, from this one on, are measured together; 0: it is measured with one before.
  std::size_t packed = 1;
};

// Parts [first_part, end_part) that are measured, then summed, for `window` records at a time.
struct Group {
  std::vector<Piece> pieces;  // by part, then by tensor, then by coordinate
  std::uint32_t first_part = 0;
  std::uint32_t end_part = 0;
  std::size_t window = 0;
};

void check_partition(const ModelLayout& layout, const Partition& partition) {
  const auto refuse = [](std::string sentence) {
    throw Error(ErrorCode::kInvalidDpConfig, kOperator, std::move(sentence));
  };
  if (partition.part_of.size() != layout.size())
    refuse(fmt::format("the partition is of {} tensors, the layout has {}; cut this layout",
                       partition.part_of.size(), layout.size()));
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = partition.part_of[i];
    if (layout.tensors()[i].is_private() ? part >= partition.parts() : part != Partition::kNone)
      refuse(fmt::format("tensor {} is {} but the partition puts it in {} part; cut this layout",
                         layout.tensors()[i].name,
                         layout.tensors()[i].is_private() ? "private" : "not private",
                         part < partition.parts() ? "a" : "no"));
  }
}

void check_sum(const ModelLayout& layout, const GradientSum& sum) {
  if (!sum.is_of(layout))
    throw Error(ErrorCode::kInvalidInput, kOperator,
                "the sum belongs to another layout; make one with GradientSum(layout)");
}

void check_options(const ClipOptions& options) {
  if (options.max_microbatch == 0)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "max_microbatch is 0; at least one record is worked on at a time");
  numerics::require_round_to_nearest();
}

// How many records of so many bytes are measured before they are summed: what a cache holds, or
// all.
std::size_t window_of(std::uint64_t bytes, std::size_t records, std::size_t second_cache) {
  for (const std::size_t cache : {second_cache, kThirdCache}) {
    const std::uint64_t held = cache / std::max<std::uint64_t>(1, bytes);
    if (held >= kFewest) return std::min<std::uint64_t>(records, held - held % kFewest);
  }
  return records;
}

// One group per part, small neighbours together; or all parts in one, if a flat bound needs every
// norm of a record before anything is summed.
std::vector<Group> group_parts(const ModelLayout& layout, const Partition& partition,
                               std::size_t records, std::size_t bytes, int threads, bool together) {
  const std::size_t second_cache = kSecondCache * static_cast<std::size_t>(std::max(1, threads));
  std::vector<std::vector<Piece>> pieces(partition.parts());
  std::vector<std::uint64_t> elements(partition.parts());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = partition.part_of[i];
    if (part == Partition::kNone) continue;
    elements[part] += layout.elements(i);
    for (std::size_t begin = 0; begin < layout.elements(i); begin += kPiece)
      pieces[part].push_back(
          {i, begin, std::min<std::size_t>(begin + kPiece, layout.elements(i)), part});
  }
  std::vector<Group> groups;
  std::uint64_t in_group = 0;
  for (std::uint32_t part = 0; part < partition.parts(); ++part) {
    const bool joins = together || (in_group + elements[part]) * bytes * records <= second_cache;
    if (groups.empty() || !joins) {
      groups.emplace_back().first_part = part;
      in_group = 0;
    }
    Group& group = groups.back();
    group.pieces.insert(group.pieces.end(), pieces[part].begin(), pieces[part].end());
    group.end_part = part + 1;
    in_group += elements[part];
    group.window = together ? records : window_of(in_group * bytes, records, second_cache);
  }
  return groups;
}

// All ranges in one group: scales are decided from all norms of a record.
std::vector<Group> group_ranges(std::span<const CoordinateRange> ranges, std::size_t parts,
                                std::size_t records, std::size_t bytes, int threads) {
  const std::size_t second_cache = kSecondCache * static_cast<std::size_t>(std::max(1, threads));
  Group group;
  group.end_part = static_cast<std::uint32_t>(parts);
  std::uint64_t elements = 0;
  for (const CoordinateRange& range : ranges) {
    elements += range.end - range.begin;
    for (std::size_t begin = range.begin; begin < range.end; begin += kPiece)
      group.pieces.push_back(
          {range.tensor, begin, std::min(begin + kPiece, range.end), range.part});
  }
  group.window = window_of(elements * bytes, records, second_cache);
  Piece* leader = nullptr;
  std::size_t held = 0;
  for (Piece& piece : group.pieces) {
    const std::size_t n = piece.end - piece.begin;
    if (leader != nullptr && leader->part == piece.part && leader->tensor == piece.tensor &&
        n < kShort && held + n <= kPack) {
      ++leader->packed;
      piece.packed = 0;
      held += n;
    } else {
      leader = n < kShort ? &piece : nullptr;
      held = n;
    }
  }
  return {std::move(group)};
}

// What all threads work on. Each walks the same schedule over its own share of the pieces; norms
// and scales are decided by the first one between two barriers.
template <class Real>
class Team {
 public:
  Team(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
       const ClipOptions& options, std::vector<Group> groups, GradientSum* sum,
       const Permits* permits = nullptr)
      : layout_(layout),
        gradients_(gradients),
        options_(options),
        groups_(std::move(groups)),
        sum_(sum),
        permits_(permits),
        shares_(shares(layout, gradients, options)),
        barrier_(static_cast<std::ptrdiff_t>(shares_)),
        scratch_(shares_) {
    std::size_t pieces = 0, most = 0;
    for (Group& group : groups_) {
      group.window = std::clamp<std::size_t>(group.window, 1, options.max_microbatch);
      pieces = std::max(pieces, group.pieces.size());
      most = std::max(most, group.pieces.size() * std::min(group.window, gradients.records));
    }
    piece_norms_.resize(most);
    for (auto& own : scratch_) own.reserve(pieces);  // no allocation, hence no failure, in a thread
  }

  // f(share) from every thread; from none if not all can be started.
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

  // Both, while the records of a window are in the cache. Stops at the first part of a record that
  // is not finite, or whose norms are: false, and the sum is as it was.
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
  std::span<const Piece> pieces_of(const Group& group, std::size_t share) const {
    const std::size_t count = group.pieces.size();
    const std::size_t begin = count * share / shares_;
    return std::span(group.pieces).subspan(begin, count * (share + 1) / shares_ - begin);
  }

  void measure(std::size_t share, const Group& group, std::size_t first, std::size_t end,
               RecordNorms& norms) {
    const std::size_t records = end - first;
    for (const Piece& piece : pieces_of(group, share)) {
      if (piece.packed == 0) continue;
      double* out =
          piece_norms_.data() + static_cast<std::size_t>(&piece - group.pieces.data()) * records;
      const Real* rows[kRows];
      for (std::size_t r = 0; r < records; r += kRows) {
        const std::size_t count = std::min(kRows, records - r);
        if (permits_ != nullptr) {
          permitted_norms(piece, first + r, count, out + r);
          continue;
        }
        for (std::size_t k = 0; k < count; ++k) rows[k] = row(piece, first + r + k);
        kernels::norms_from_above(rows, count, piece.end - piece.begin, out + r);
      }
    }
    barrier_.arrive_and_wait();
    // The records of the window are shared out too: a model has many pieces.
    std::vector<double>& together = scratch_[share];
    for (std::size_t r = records * share / shares_; r < records * (share + 1) / shares_; ++r) {
      std::size_t p = 0;
      for (std::uint32_t part = group.first_part; part < group.end_part; ++part) {
        together.clear();
        for (; p < group.pieces.size() && group.pieces[p].part == part; ++p)
          if (group.pieces[p].packed != 0) together.push_back(piece_norms_[p * records + r]);
        const bool finite = std::none_of(together.begin(), together.end(),
                                         [](double norm) { return std::isnan(norm); });
        norms.norms[(first + r) * norms.parts + part] =
            finite ? norm_from_above(together) : std::numeric_limits<double>::quiet_NaN();
      }
    }
    barrier_.arrive_and_wait();
  }

  // The norms of those records that may reach the piece, 0 for the others.
  void permitted_norms(const Piece& piece, std::size_t first, std::size_t count,
                       double* out) const {
    const Real* rows[kRows];
    double found[kRows];
    std::size_t k = 0;
    for (std::size_t r = 0; r < count; ++r)
      if ((*permits_)(first + r, piece.part)) rows[k++] = row(piece, first + r);
    if (piece.packed > 1)
      packed_norms(piece, rows, k, found);
    else
      kernels::norms_from_above(rows, k, piece.end - piece.begin, found);
    k = 0;
    for (std::size_t r = 0; r < count; ++r)
      out[r] = (*permits_)(first + r, piece.part) ? found[k++] : 0;
  }

  // The norms of several short pieces together: side by side they are one row.
  //   rows: where the first piece begins, of `count` records
  static void packed_norms(const Piece& first, const Real* const* rows, std::size_t count,
                           double* out) {
    constexpr std::size_t kTogether = 4;
    Real packed[kTogether][kPack];
    for (std::size_t r = 0; r < count; r += kTogether) {
      const std::size_t k = std::min(kTogether, count - r);
      const Real* sources[kTogether];
      std::size_t length = 0;
      for (std::size_t i = 0; i < k; ++i) {
        sources[i] = packed[i];
        Real* to = packed[i];
        for (const Piece* piece = &first; piece != &first + first.packed; ++piece)
          to = std::copy_n(rows[r + i] + (piece->begin - first.begin), piece->end - piece->begin,
                           to);
        length = static_cast<std::size_t>(to - packed[i]);
      }
      kernels::norms_from_above(sources, k, length, out + r);
    }
  }

  bool all_numbers(const Group& group, std::size_t first, std::size_t end,
                   const RecordNorms& norms) const {
    for (std::size_t i = first; i < end; ++i)
      for (std::uint32_t part = group.first_part; part < group.end_part; ++part)
        if (std::isnan(norms.norm(i, part))) return false;
    return true;
  }

  // What restores the sum. A sum of nothing yet, the usual one, needs no copy.
  void remember(std::size_t share, Group& group) {
    const std::size_t count = group.pieces.size();
    for (std::size_t p = count * share / shares_; p < count * (share + 1) / shares_; ++p) {
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
    for (const Piece& piece : pieces_of(group, share)) {
      const std::span<double> target = sum_of(piece);
      const Real* rows[kRows];
      double scales[kRows];
      std::size_t count = 0;
      for (std::size_t i = first; i < end; ++i) {
        // 0 times an infinity is no 0.
        if (decided.scale(i, piece.part) != 0) {
          rows[count] = row(piece, i);
          scales[count++] = decided.scale(i, piece.part);
        }
        if (count == kRows || i + 1 == end) {
          kernels::add_rows(rows, scales, count, target.data(), target.size());
          count = 0;
        }
      }
    }
  }

  const ModelLayout& layout_;
  const PerSampleGradients<Real>& gradients_;
  const ClipOptions& options_;
  std::vector<Group> groups_;
  GradientSum* sum_;
  const Permits* permits_;  // null: every record reaches every part
  std::size_t shares_;
  std::barrier<> barrier_;
  std::vector<double> piece_norms_;  // of a window: piece, then record
  std::unique_ptr<double[]> before_;
  std::vector<std::vector<double>> scratch_;  // one per thread
};

template <class Real>
[[noreturn]] void abort_clip(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                             std::size_t record) {
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const auto row = gradients.tensors[i].subspan(record * layout.elements(i), layout.elements(i));
    if (!std::all_of(row.begin(), row.end(), [](Real x) { return std::isfinite(x); }))
      throw Error(ErrorCode::kInvalidGradient, kOperator,
                  fmt::format("the gradient of tensor {} is not finite in record {}; nothing was "
                              "added. nonfinite: zero leaves such records out",
                              layout.tensors()[i].name, record));
  }
  throw Error(ErrorCode::kInvalidGradient, kOperator,
              fmt::format("the gradient of record {} changed while it was read", record));
}

RecordNorms empty_norms(std::size_t records, std::size_t parts) {
  RecordNorms norms;
  norms.records = records;
  norms.parts = parts;
  norms.norms.resize(records * parts);
  norms.scales.resize(records * parts);
  norms.zeroed.resize(records);
  return norms;
}

template <class Real>
RecordNorms norms_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                     std::size_t parts, std::vector<Group> groups, const ClipOptions& options,
                     const Permits* permits = nullptr) {
  RecordNorms norms = empty_norms(gradients.records, parts);
  norms.scales.clear();
  Team<Real> team(layout, gradients, options, std::move(groups), nullptr, permits);
  team.run([&](std::size_t share) { team.measure(share, norms); });
  for (std::size_t i = 0; i < norms.records; ++i) {
    const auto own = std::span(norms.norms).subspan(i * norms.parts, norms.parts);
    if (std::none_of(own.begin(), own.end(), [](double norm) { return std::isnan(norm); }))
      continue;
    if (options.nonfinite == Nonfinite::kAbort) abort_clip(layout, gradients, i);
    std::fill(own.begin(), own.end(), 0.0);
    norms.zeroed[i] = 1;
  }
  return norms;
}

template <class Real>
RecordNorms norms_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                     const Partition& partition, const ClipOptions& options) {
  return norms_of(
      layout, gradients, partition.parts(),
      group_parts(layout, partition, gradients.records, sizeof(Real), options.threads, true),
      options);
}

template <class Real>
void sum_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
            std::vector<Group> groups, const RecordNorms& decided, const ClipOptions& options,
            GradientSum& sum) {
  Team<Real> team(layout, gradients, options, std::move(groups), &sum);
  team.run([&](std::size_t share) { team.accumulate(share, decided); });
}

template <class Real>
void sum_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
            const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
            GradientSum& sum) {
  sum_of(layout, gradients,
         group_parts(layout, partition, gradients.records, sizeof(Real), options.threads, true),
         decided, options, sum);
}

template <class Real>
RecordNorms clip(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                 const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  check_options(options);
  check_partition(layout, plan.partition);
  check_gradients(layout, gradients);
  check_sum(layout, sum);
  RecordNorms norms = empty_norms(0, plan.partition.parts());
  decide_scales(plan, norms);  // refuses bounds that are none, even for an empty batch
  if (gradients.records == 0) return norms;

  auto groups = group_parts(layout, plan.partition, gradients.records, sizeof(Real),
                            options.threads, plan.flat_clip.has_value());
  if (!plan.flat_clip) {
    norms = empty_norms(gradients.records, plan.partition.parts());
    Team<Real> team(layout, gradients, options, std::move(groups), &sum);
    const auto decide = [&](const Group& group, std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i)
        for (std::uint32_t part = group.first_part; part < group.end_part; ++part)
          norms.scales[i * norms.parts + part] = clip_scale(norms.norm(i, part), plan.clip[part]);
    };
    if (team.measure_and_accumulate(decide, norms)) return norms;
  }
  norms = norms_of(layout, gradients, plan.partition, options);
  decide_scales(plan, norms);
  sum_of(layout, gradients, plan.partition, norms, options, sum);
  return norms;
}

template <class Real>
RecordNorms checked_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                          const Partition& partition, const ClipOptions& options) {
  check_options(options);
  check_partition(layout, partition);
  check_gradients(layout, gradients);
  return norms_of(layout, gradients, partition, options);
}

template <class Real>
void checked_add(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                 const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                 GradientSum& sum) {
  check_options(options);
  check_partition(layout, partition);
  check_gradients(layout, gradients);
  check_sum(layout, sum);
  if (decided.records != gradients.records || decided.parts != partition.parts() ||
      decided.scales.size() != decided.records * decided.parts)
    throw Error(ErrorCode::kInvalidInput, kOperator,
                fmt::format("scales of {} records and {} parts for gradients of {} records and {} "
                            "parts; decide_scales first",
                            decided.records, decided.parts, gradients.records, partition.parts()));
  sum_of(layout, gradients, partition, decided, options, sum);
}

}  // namespace

template <class Real>
RecordNorms range_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                        std::span<const CoordinateRange> ranges, const Permits& permits,
                        const ClipOptions& options) {
  check_options(options);
  check_gradients(layout, gradients);
  return norms_of(
      layout, gradients, permits.parts,
      group_ranges(ranges, permits.parts, gradients.records, sizeof(Real), options.threads),
      options, &permits);
}

template <class Real>
RecordNorms clip_ranges(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                        std::span<const CoordinateRange> ranges, const Permits& permits,
                        const ClipOptions& options, const DecideScales& decide, GradientSum& sum) {
  check_options(options);
  check_gradients(layout, gradients);
  check_sum(layout, sum);
  RecordNorms norms = empty_norms(gradients.records, permits.parts);
  if (gradients.records == 0) return norms;
  const auto groups =
      group_ranges(ranges, permits.parts, gradients.records, sizeof(Real), options.threads);
  Team<Real> team(layout, gradients, options, groups, &sum, &permits);
  const auto decide_window = [&](const Group&, std::size_t first, std::size_t end) {
    decide(first, end, norms);
  };
  if (team.measure_and_accumulate(decide_window, norms)) return norms;
  norms = norms_of(layout, gradients, permits.parts, groups, options, &permits);
  norms.scales.resize(norms.norms.size());
  decide(0, norms.records, norms);
  sum_of(layout, gradients, groups, norms, options, sum);
  return norms;
}

template RecordNorms range_norms(const ModelLayout&, const PerSampleGradients<float>&,
                                 std::span<const CoordinateRange>, const Permits&,
                                 const ClipOptions&);
template RecordNorms range_norms(const ModelLayout&, const PerSampleGradients<double>&,
                                 std::span<const CoordinateRange>, const Permits&,
                                 const ClipOptions&);
template RecordNorms clip_ranges(const ModelLayout&, const PerSampleGradients<float>&,
                                 std::span<const CoordinateRange>, const Permits&,
                                 const ClipOptions&, const DecideScales&, GradientSum&);
template RecordNorms clip_ranges(const ModelLayout&, const PerSampleGradients<double>&,
                                 std::span<const CoordinateRange>, const Permits&,
                                 const ClipOptions&, const DecideScales&, GradientSum&);

RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, gradients, plan, options, sum);
}
RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, gradients, plan, options, sum);
}
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                             const Partition& partition, const ClipOptions& options) {
  return checked_norms(layout, gradients, partition, options);
}
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                             const Partition& partition, const ClipOptions& options) {
  return checked_norms(layout, gradients, partition, options);
}
void add_scaled(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum) {
  checked_add(layout, gradients, partition, decided, options, sum);
}
void add_scaled(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum) {
  checked_add(layout, gradients, partition, decided, options, sum);
}

double summation_charge(std::uint64_t terms) noexcept {
  if (terms >= std::uint64_t{1} << 40) return std::numeric_limits<double>::infinity();
  const double n = static_cast<double>(terms);
  // 2 n gamma_n, gamma_n = n u / (1 - n u); the denominator is exact.
  return terms == 0 ? 0 : numerics::next_up(numerics::next_up(n * n) * 0x1p-52 / (1 - n * 0x1p-53));
}

}  // namespace discreet::mechanism
