#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/mechanism/clip/clip_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::mechanism::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<double, 8>;
using V = hn::Vec<Tag>;

HWY_INLINE V Widen(const double* x) { return hn::LoadU(Tag(), x); }
HWY_INLINE V Widen(const float* x) {
  return hn::PromoteTo(Tag(), hn::LoadU(hn::Rebind<float, Tag>(), x));
}

// y += s_r times row r, row after row; the sum is loaded and stored once for all of them.
template <std::size_t kRows, class Real>
HWY_INLINE void Add(const Real* const* rows, const double* s, std::size_t begin, std::size_t end,
                    double* y) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const Real* row[kRows];
  V scale[kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    row[r] = rows[r];
    scale[r] = hn::Set(d, s[r]);
  }
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    V sum = hn::LoadU(d, y + i);
    for (std::size_t r = 0; r < kRows; ++r)
      sum = hn::Add(sum, hn::Mul(scale[r], Widen(row[r] + i)));
    hn::StoreU(sum, d, y + i);
  }
  for (; i < end; ++i)
    for (std::size_t r = 0; r < kRows; ++r) y[i] += s[r] * row[r][i];
}

// f(rows at once, the first of them), for all rows in their order: several streams from memory
// are faster than one.
template <class F>
HWY_INLINE void ByFour(std::size_t count, F f) {
  std::size_t r = 0;
  for (; r + 4 <= count; r += 4) f(std::integral_constant<std::size_t, 4>(), r);
  if (count - r == 3) f(std::integral_constant<std::size_t, 3>(), r);
  if (count - r == 2) f(std::integral_constant<std::size_t, 2>(), r);
  if (count - r == 1) f(std::integral_constant<std::size_t, 1>(), r);
}

template <class Real>
HWY_INLINE void AddRows(const Real* const* rows, const double* scales, std::size_t count,
                        std::size_t begin, std::size_t end, double* y) {
  for (; begin < end; begin += kTile) {
    const std::size_t last = std::min(end, begin + kTile);
    ByFour(count,
           [&](auto n, std::size_t r) HWY_ATTR { Add<n()>(rows + r, scales + r, begin, last, y); });
  }
}

// Four rows of each set, stripe after stripe as they lie in memory, then the next four.
template <class Real>
HWY_INLINE void AddStripes(const RowSet<Real>* sets, const Stripe* stripes, std::size_t count,
                           double* y) {
  for (const Stripe *first = stripes, *last = first; first != stripes + count; first = last) {
    std::size_t rows = 0;
    do rows = std::max(rows, sets[last->set].count);
    while (++last != stripes + count && last->end - first->begin <= kTile);
    for (std::size_t r = 0; r < rows; r += 4)
      for (const Stripe* s = first; s != last; ++s) {
        const RowSet<Real>& set = sets[s->set];
        if (r >= set.count) continue;
        ByFour(std::min<std::size_t>(4, set.count - r), [&](auto n, std::size_t) HWY_ATTR {
          Add<n()>(set.rows + r, set.scales + r, s->begin, s->end, y);
        });
      }
  }
}

void AddFloatStripes(const RowSet<float>* sets, const Stripe* stripes, std::size_t count,
                     double* y) {
  AddStripes(sets, stripes, count, y);
}
void AddDoubleStripes(const RowSet<double>* sets, const Stripe* stripes, std::size_t count,
                      double* y) {
  AddStripes(sets, stripes, count, y);
}
void AddFloatRows(const float* const* rows, const double* scales, std::size_t count,
                  std::size_t begin, std::size_t end, double* y) {
  AddRows(rows, scales, count, begin, end, y);
}
void AddDoubleRows(const double* const* rows, const double* scales, std::size_t count,
                   std::size_t begin, std::size_t end, double* y) {
  AddRows(rows, scales, count, begin, end, y);
}

constexpr std::size_t kChunk = 256;  // the specification's unit of a reduction
constexpr std::size_t kBlock = 32;   // the values of a word of a mask; four of every lane
constexpr std::size_t kLanes = 8;    // one vector of AVX-512, four of SSE2 or NEON
constexpr std::size_t kVectors = kLanes / hn::MaxLanes(Tag());

// Squares of binary32 numbers are exact in binary64 and far from the ends of its range. Lane j of
// chunk k adds the squares of the elements j, j + 8, ... of the chunk in four interleaved sums.
struct Squares {
  V sum[kVectors], lost[kVectors];

  HWY_INLINE Squares() {
    for (std::size_t v = 0; v < kVectors; ++v) sum[v] = lost[v] = hn::Zero(Tag());
  }
  HWY_INLINE void AddChunk(const float* x) {
    AddChunk([x](std::size_t, std::size_t i) HWY_ATTR { return Widen(x + i); });
  }
  // words: of the mask of the chunk's values, 0 or all ones each
  HWY_INLINE void AddChunk(const float* x, const std::uint32_t* words) {
    AddChunk([x, words](std::size_t b, std::size_t i) HWY_ATTR {
      const hn::Rebind<float, Tag> f;
      const auto mask = hn::BitCast(f, hn::Set(hn::Rebind<std::uint32_t, Tag>(), words[b]));
      return hn::PromoteTo(Tag(), hn::And(mask, hn::LoadU(f, x + i)));
    });
  }
  // value(b, i): the elements i, ..., i + lanes - 1 of the chunk, which are of its block b.
  template <class Value>
  HWY_INLINE void AddChunk(Value value_at) requires(!std::is_pointer_v<Value>) {
    const Tag d;
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t v = 0; v < kVectors; ++v) {
      V part[4];
      for (std::size_t k = 0; k < 4; ++k) {
        const V value = value_at(0, k * kLanes + v * lanes);
        part[k] = hn::Mul(value, value);
      }
      for (std::size_t b = 1; b < kChunk / kBlock; ++b) {
        for (std::size_t k = 0; k < 4; ++k) {
          const V value = value_at(b, b * kBlock + k * kLanes + v * lanes);
          part[k] = hn::MulAdd(value, value, part[k]);  // fused or not: the square is exact
        }
      }
      const V chunk = hn::Add(hn::Add(part[0], part[1]), hn::Add(part[2], part[3]));
      const V y = hn::Sub(chunk, lost[v]);
      const V t = hn::Add(sum[v], y);
      lost[v] = hn::Sub(hn::Sub(t, sum[v]), y);
      sum[v] = t;
    }
  }
  HWY_INLINE double Total() const {
    const Tag d;
    HWY_ALIGN double s[kLanes];
    for (std::size_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, s + v * hn::Lanes(d));
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  }
};

// Hardware prefetch stops at the end of a page of 4 KiB; this continues. The measured processors
// with AVX-512 gain from it; one with AVX2 (Zen 3) loses a fifth.
constexpr bool kFetches = HWY_MAX_BYTES == 64;
constexpr std::size_t kAhead = 512, kLine = 16;

template <std::size_t kRows>
HWY_INLINE void SquaresOf(const float* const* rows, std::size_t n, double* out) {
  Squares squares[kRows];
  std::size_t i = 0;
  for (; i + kChunk <= n; i += kChunk)
    for (std::size_t r = 0; r < kRows; ++r) {
      if (kFetches && i + kAhead + kChunk <= n)
        for (std::size_t k = 0; k < kChunk; k += kLine)
          __builtin_prefetch(rows[r] + i + kAhead + k);
      squares[r].AddChunk(rows[r] + i);
    }
  for (std::size_t r = 0; r < kRows; ++r) {
    if (i < n) {
      float rest[kChunk] = {};
      std::copy_n(rows[r] + i, n - i, rest);
      squares[r].AddChunk(rest);
    }
    out[r] = squares[r].Total();
  }
}

// What the mask leaves of the first n values of a chunk.
HWY_INLINE void CopyMasked(const float* x, const std::uint32_t* words, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = (words[i / kBlock] >> (i % kBlock) & 1) != 0 ? x[i] : 0.0F;
}
HWY_INLINE bool AreWholeBlocks(const std::uint32_t* words) {
  std::uint32_t mixed = 0;
  for (std::size_t b = 0; b < kChunk / kBlock; ++b) mixed |= words[b] ^ (0 - (words[b] & 1));
  return mixed == 0;
}

template <std::size_t kRows>
HWY_INLINE void SquaresOfMasked(const float* const* rows, const std::uint32_t* const* masks,
                                std::size_t n, double* out) {
  Squares squares[kRows];
  float rest[kChunk];
  std::size_t i = 0;
  for (; i + kChunk <= n; i += kChunk)
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::uint32_t* words = masks[r] + i / kBlock;
      if (AreWholeBlocks(words)) {
        squares[r].AddChunk(rows[r] + i, words);
      } else {
        CopyMasked(rows[r] + i, words, kChunk, rest);
        squares[r].AddChunk(rest);
      }
    }
  for (std::size_t r = 0; r < kRows; ++r) {
    if (i < n) {
      std::fill_n(rest, kChunk, 0.0F);
      CopyMasked(rows[r] + i, masks[r] + i / kBlock, n - i, rest);
      squares[r].AddChunk(rest);
    }
    out[r] = squares[r].Total();
  }
}

void SquaresOfMaskedRows(const float* const* rows, const std::uint32_t* const* masks,
                         std::size_t count, std::size_t n, double* out) {
  ByFour(count, [&](auto side_by_side, std::size_t r)
                    HWY_ATTR { SquaresOfMasked<side_by_side()>(rows + r, masks + r, n, out + r); });
}

void SquaresOfRows(const float* const* rows, std::size_t count, std::size_t n, double* out) {
  ByFour(count, [&](auto side_by_side, std::size_t r)
                    HWY_ATTR { SquaresOf<side_by_side()>(rows + r, n, out + r); });
}

}  // namespace discreet::mechanism::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::mechanism::kernels {
HWY_EXPORT(AddFloatRows);
HWY_EXPORT(AddDoubleRows);
HWY_EXPORT(SquaresOfRows);
HWY_EXPORT(SquaresOfMaskedRows);
HWY_EXPORT(AddFloatStripes);
HWY_EXPORT(AddDoubleStripes);

namespace {
void roots_from_above(double* squares, std::size_t count) noexcept {
  for (std::size_t r = 0; r < count; ++r)
    squares[r] = std::isfinite(squares[r]) ? std::sqrt(squares[r]) * (1 + 0x1p-49)
                                           : std::numeric_limits<double>::quiet_NaN();
}
}  // namespace

void add_stripes(const RowSet<float>* sets, const Stripe* stripes, std::size_t count,
                 double* y) noexcept {
  HWY_DYNAMIC_DISPATCH(AddFloatStripes)(sets, stripes, count, y);
}
void add_stripes(const RowSet<double>* sets, const Stripe* stripes, std::size_t count,
                 double* y) noexcept {
  HWY_DYNAMIC_DISPATCH(AddDoubleStripes)(sets, stripes, count, y);
}

void add_rows(const float* const* rows, const double* scales, std::size_t count, std::size_t begin,
              std::size_t end, double* y) noexcept {
  HWY_DYNAMIC_DISPATCH(AddFloatRows)(rows, scales, count, begin, end, y);
}
void add_rows(const double* const* rows, const double* scales, std::size_t count, std::size_t begin,
              std::size_t end, double* y) noexcept {
  HWY_DYNAMIC_DISPATCH(AddDoubleRows)(rows, scales, count, begin, end, y);
}

void norms_from_above(const float* const* rows, std::size_t count, std::size_t n,
                      double* norms) noexcept {
  HWY_DYNAMIC_DISPATCH(SquaresOfRows)(rows, count, n, norms);
  roots_from_above(norms, count);
}
void masked_norms_from_above(const float* const* rows, const std::uint32_t* const* masks,
                             std::size_t count, std::size_t n, double* norms) noexcept {
  HWY_DYNAMIC_DISPATCH(SquaresOfMaskedRows)(rows, masks, count, n, norms);
  roots_from_above(norms, count);
}
void norms_from_above(const double* const* rows, std::size_t count, std::size_t n,
                      double* norms) noexcept {
  for (std::size_t r = 0; r < count; ++r) {
    const std::span row(rows[r], n);
    const double norm = numerics::norm_l2_upper(row);
    norms[r] = norm == 0 ? 0 : numerics::next_up(norm);
    if (!std::isfinite(norm) &&
        !std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); }))
      norms[r] = std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace discreet::mechanism::kernels
#endif
