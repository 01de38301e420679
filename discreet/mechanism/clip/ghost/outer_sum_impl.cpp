#include "discreet/mechanism/clip/ghost/outer_sum_impl.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/mechanism/clip/ghost/outer_sum_impl.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::mechanism::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a register tile: 2 * kTileRows accumulators, two vectors of y and one of x fit the
// registers (32 of AVX-512 and NEON, 16 before).
#if HWY_MAX_BYTES == 64 || HWY_ARCH_ARM
constexpr std::size_t kTileRows = 12;
#else
constexpr std::size_t kTileRows = 6;
#endif
constexpr std::size_t kGroupRows = 256;  // whose runs are added up before they are merged
constexpr std::size_t kGroups = 2;       // of a packed block: a panel of x stays in the L1 cache
constexpr std::size_t kBlockRows = kGroups * kGroupRows;
constexpr std::size_t kBlockOutputs = 1032;  // columns of packed x: a multiple of the tiles' rows
constexpr std::size_t kBlockColumns = 256;   // columns of packed y: it stays in the L2 cache

template <class Real>
using Tag = hn::CappedTag<Real, 64 / sizeof(Real)>;
template <class Real>
using Vector = hn::Vec<Tag<Real>>;
template <class Real>
constexpr std::size_t kLanes = hn::MaxLanes(Tag<Real>());
template <class Real>
constexpr std::size_t kTileColumns = 2 * kLanes<Real>;

// Panels of `width` columns, each row after row, filled with zeros to the full width. What `live`
// has a 0 for is not even read: 0 * NaN is NaN.
template <std::size_t width, class Real, class Source>
void Pack(const Rows<Source>& from, const double* live, std::size_t first_row, std::size_t rows,
          std::size_t column, std::size_t columns, Real* HWY_RESTRICT to) {
  Real line[std::max(kBlockOutputs, kBlockColumns) + width];
  for (std::size_t k = 0; k < rows; ++k) {
    const std::size_t row = first_row + k;
    const double factor = from.row_factor ? from.factor * from.row_factor[row] : from.factor;
    const Source* HWY_RESTRICT source =
        from.data + row * from.row_stride + column * from.column_stride;
    if (factor == 0 || (live && live[row] == 0)) {
      std::fill_n(line, columns, Real{0});
    } else if (from.column_stride != 1) {
      for (std::size_t j = 0; j < columns; ++j)
        line[j] = static_cast<Real>(factor * static_cast<double>(source[j * from.column_stride]));
    } else if (factor == 1) {
      for (std::size_t j = 0; j < columns; ++j) line[j] = static_cast<Real>(source[j]);
    } else {
      for (std::size_t j = 0; j < columns; ++j)
        line[j] = static_cast<Real>(factor * static_cast<double>(source[j]));
    }
    std::fill_n(line + columns, width, Real{0});
    for (std::size_t c = 0; c < columns; c += width)
      std::memcpy(to + c * rows + k * width, line + c, width * sizeof(Real));
  }
}

// tile = the sum over `terms` rows of the panels. The lines of target that it will be added to are
// prefetched meanwhile, a row at a time: all at once they would fill the queue of loads.
template <class Real>
HWY_INLINE void Accumulate(const Real* HWY_RESTRICT x, const Real* HWY_RESTRICT y,
                           std::size_t terms, Real* HWY_RESTRICT tile, const double* target,
                           std::size_t stride) {
  const Tag<Real> d;
  Vector<Real> sum[kTileRows][2];
  for (auto& row : sum) row[0] = row[1] = hn::Zero(d);
  const std::size_t share = (terms + kTileRows - 1) / kTileRows;
  for (std::size_t k = 0, next = 0; k < terms; target += stride) {
    for (std::size_t n = 0; n < kTileColumns<Real>; n += 8) __builtin_prefetch(target + n, 1, 3);
    next = std::min(terms, next + share);
#pragma GCC unroll 4
    for (; k < next; ++k, x += kTileRows, y += kTileColumns<Real>) {
      const Vector<Real> y0 = hn::Load(d, y), y1 = hn::Load(d, y + kLanes<Real>);
#pragma GCC unroll 12
      for (std::size_t m = 0; m < kTileRows; ++m) {
        const Vector<Real> factor = hn::Set(d, x[m]);
        sum[m][0] = hn::MulAdd(factor, y0, sum[m][0]);
        sum[m][1] = hn::MulAdd(factor, y1, sum[m][1]);
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t m = 0; m < kTileRows; ++m) {
    hn::Store(sum[m][0], d, tile + m * kTileColumns<Real>);
    hn::Store(sum[m][1], d, tile + m * kTileColumns<Real> + kLanes<Real>);
  }
}

HWY_INLINE Vector<double> Widen(const double* x) { return hn::Load(Tag<double>(), x); }
HWY_INLINE Vector<double> Widen(const float* x) {
  return hn::PromoteTo(Tag<double>(), hn::Load(hn::Rebind<float, Tag<double>>(), x));
}

constexpr std::size_t kRuns = 4;  // of a group at a time: their tiles stay in the L1 cache

// target += the sum of the tiles of each group, in their order; groups are kRuns tiles apart.
//   only_runs: the runs of the only group if they are known when this is compiled, else 0
template <std::size_t columns, std::size_t only_runs, class Real>
HWY_INLINE void MergeRuns(const Real* HWY_RESTRICT tiles, const std::size_t* runs,
                          std::size_t groups, double* HWY_RESTRICT target, std::size_t stride,
                          bool first) {
  constexpr std::size_t kElements = kTileRows * columns;
  const Tag<double> d;
  if (only_runs != 0) groups = 1;
  for (std::size_t m = 0; m < kTileRows; ++m)
#pragma GCC unroll 4
    for (std::size_t n = 0; n < columns; n += kLanes<double>) {
      double* to = target + m * stride + n;
      Vector<double> merged = first ? hn::Zero(d) : hn::LoadU(d, to);
      for (std::size_t g = 0; g < groups; ++g) {
        const Real* from = tiles + g * kRuns * kElements + m * columns + n;
        const std::size_t count = only_runs != 0 ? only_runs : runs[g];
        Vector<double> total = Widen(from);
        for (std::size_t k = 1; k < count; ++k) total = hn::Add(total, Widen(from += kElements));
        merged = hn::Add(merged, total);
      }
      hn::StoreU(merged, d, to);
    }
}

template <std::size_t columns, class Real>
HWY_INLINE void Merge(const Real* HWY_RESTRICT tiles, const std::size_t* runs, std::size_t groups,
                      double* HWY_RESTRICT target, std::size_t stride, bool first) {
  if (groups == 1 && runs[0] == 2)  // a batch of up to 256 records, by default
    MergeRuns<columns, 2>(tiles, runs, groups, target, stride, first);
  else
    MergeRuns<columns, 0>(tiles, runs, groups, target, stride, first);
}

// record: at most kGroupRows; rows start with one.
template <class Real>
void Tile(const Real* x, const Real* y, std::size_t rows, std::size_t run, std::size_t record,
          double* target, std::size_t stride, bool first, std::size_t live_rows,
          std::size_t live_columns) {
  constexpr std::size_t kColumns = kTileColumns<Real>, kElements = kTileRows * kColumns;
  HWY_ALIGN Real tiles[kGroups * kRuns * kElements];
  std::size_t runs[kGroups] = {};
  const bool whole = live_rows == kTileRows && live_columns == kColumns;
  if (whole && record == kGroupRows && kGroupRows <= kRuns * run) {
    // All that the rows bring in one pass over the target.
    std::size_t groups = 0;
    for (std::size_t k = 0; k < rows; ++groups) {
      const std::size_t end = std::min(rows, k + kGroupRows);
      for (; k < end; k += std::min(run, end - k))
        Accumulate(x + k * kTileRows, y + k * kColumns, std::min(run, end - k),
                   tiles + (groups * kRuns + runs[groups]++) * kElements, target, stride);
    }
    return Merge<kColumns>(tiles, runs, groups, target, stride, first);
  }
  HWY_ALIGN double total[kElements];
  for (std::size_t k = 0; k < rows;) {
    const std::size_t end = std::min(rows, k + kGroupRows / record * record);
    std::fill_n(total, kElements, 0.0);
    while (k < end) {
      runs[0] = 0;
      for (std::size_t terms; runs[0] < kRuns && k < end; k += terms) {
        terms = std::min({run, end - k, record - k % record});
        Accumulate(x + k * kTileRows, y + k * kColumns, terms, tiles + runs[0]++ * kElements,
                   target, 0);
      }
      Merge<kColumns>(tiles, runs, 1, total, kColumns, false);
    }
    for (std::size_t m = 0; m < live_rows; ++m)
      for (std::size_t n = 0; n < live_columns; ++n)
        target[m * stride + n] = (first ? 0 : target[m * stride + n]) + total[m * kColumns + n];
    first = false;
  }
}

template <class Real, class Source>
void AddOuter(const Rows<Source>& x, std::size_t x_columns, const Rows<Source>& y,
              std::size_t y_columns, std::size_t rows, std::size_t run, double* target,
              std::size_t stride, bool first, Real* packed, std::size_t record) {
  Real* packed_y = packed + kBlockRows * kBlockOutputs;
  // Whole records, or a part of one that starts at a multiple of kGroupRows inside it.
  const std::size_t together = std::min(record, kGroupRows);
  const std::size_t whole = record > kGroupRows ? kBlockRows : kBlockRows / record * record;
  for (std::size_t k = 0, terms; k < rows; k += terms) {
    terms = std::min(whole, rows - k);
    if (record > kGroupRows) terms = std::min(terms, record - k % record);
    for (std::size_t m = 0; m < x_columns; m += kBlockOutputs) {
      const std::size_t outputs = std::min(kBlockOutputs, x_columns - m);
      Pack<kTileRows>(x, x.row_factor, k, terms, m, outputs, packed);
      for (std::size_t n = 0; n < y_columns; n += kBlockColumns) {
        const std::size_t columns = std::min(kBlockColumns, y_columns - n);
        Pack<kTileColumns<Real>>(y, x.row_factor, k, terms, n, columns, packed_y);
        for (std::size_t r = 0; r < outputs; r += kTileRows)
          for (std::size_t c = 0; c < columns; c += kTileColumns<Real>)
            Tile(packed + r * terms, packed_y + c * terms, terms, run, together,
                 target + (m + r) * stride + n + c, stride, first && k == 0,
                 std::min(kTileRows, outputs - r), std::min(kTileColumns<Real>, columns - c));
      }
    }
  }
}

void FloatsFromFloats(const Rows<float>& x, std::size_t x_columns, const Rows<float>& y,
                      std::size_t y_columns, std::size_t rows, std::size_t run, double* target,
                      std::size_t stride, bool first, float* packed, std::size_t record) {
  AddOuter<float>(x, x_columns, y, y_columns, rows, run, target, stride, first, packed, record);
}
void DoublesFromFloats(const Rows<float>& x, std::size_t x_columns, const Rows<float>& y,
                       std::size_t y_columns, std::size_t rows, std::size_t run, double* target,
                       std::size_t stride, bool first, double* packed, std::size_t record) {
  AddOuter<double>(x, x_columns, y, y_columns, rows, run, target, stride, first, packed, record);
}
void DoublesFromDoubles(const Rows<double>& x, std::size_t x_columns, const Rows<double>& y,
                        std::size_t y_columns, std::size_t rows, std::size_t run, double* target,
                        std::size_t stride, bool first, double* packed, std::size_t record) {
  AddOuter<double>(x, x_columns, y, y_columns, rows, run, target, stride, first, packed, record);
}

}  // namespace discreet::mechanism::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::mechanism {
HWY_EXPORT(FloatsFromFloats);
HWY_EXPORT(DoublesFromFloats);
HWY_EXPORT(DoublesFromDoubles);
namespace {

// A block of x, a block of y with its last panel filled up, and room to align them.
constexpr std::size_t kPacked = 512 * (1032 + 256 + 32) + 64;

template <class Real>
Real* aligned(std::unique_ptr<Real[]>& packed) {
  if (!packed) packed = std::make_unique_for_overwrite<Real[]>(kPacked);
  const auto address = reinterpret_cast<std::uintptr_t>(packed.get());
  return packed.get() + (-address % 64) / sizeof(Real);
}

}  // namespace

template <>
void add_outer<float, float>(const Rows<float>& x, std::size_t x_columns, const Rows<float>& y,
                             std::size_t y_columns, std::size_t rows, std::size_t run,
                             double* target, std::size_t stride, bool first, OuterScratch& scratch,
                             std::size_t record) {
  HWY_DYNAMIC_DISPATCH(FloatsFromFloats)
  (x, x_columns, y, y_columns, rows, run, target, stride, first, aligned(scratch.floats), record);
}
template <>
void add_outer<double, float>(const Rows<float>& x, std::size_t x_columns, const Rows<float>& y,
                              std::size_t y_columns, std::size_t rows, std::size_t run,
                              double* target, std::size_t stride, bool first, OuterScratch& scratch,
                              std::size_t record) {
  HWY_DYNAMIC_DISPATCH(DoublesFromFloats)
  (x, x_columns, y, y_columns, rows, run, target, stride, first, aligned(scratch.doubles), record);
}
template <>
void add_outer<double, double>(const Rows<double>& x, std::size_t x_columns, const Rows<double>& y,
                               std::size_t y_columns, std::size_t rows, std::size_t run,
                               double* target, std::size_t stride, bool first,
                               OuterScratch& scratch, std::size_t record) {
  HWY_DYNAMIC_DISPATCH(DoublesFromDoubles)
  (x, x_columns, y, y_columns, rows, run, target, stride, first, aligned(scratch.doubles), record);
}

}  // namespace discreet::mechanism
#endif
