#include "discreet/mechanism/clip/ghost/record_sums.h"

#include <algorithm>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/ghost/outer_sum_impl.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/mechanism/clip/ghost/record_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::mechanism::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::CappedTag<double, 8>;

HWY_INLINE hn::Vec<Wide> Load(const double* x) { return hn::LoadU(Wide(), x); }
HWY_INLINE hn::Vec<Wide> Load(const float* x) {
  return hn::PromoteTo(Wide(), hn::LoadU(hn::Rebind<float, Wide>(), x));
}

constexpr std::size_t kTogether = 4;  // rows in one pass over the sum

// sum += the weighted rows, of n values each.
template <class Real>
HWY_INLINE void AddRows(const Real* const* rows, const double* weights, std::size_t n,
                        double* HWY_RESTRICT sum) {
  const Wide d;
  hn::Vec<Wide> w[kTogether];
  for (std::size_t k = 0; k < kTogether; ++k) w[k] = hn::Set(d, weights[k]);
  std::size_t j = 0;
  for (; j + hn::Lanes(d) <= n; j += hn::Lanes(d)) {
    auto total = hn::LoadU(d, sum + j);
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kTogether; ++k) total = hn::MulAdd(w[k], Load(rows[k] + j), total);
    hn::StoreU(total, d, sum + j);
  }
  for (; j < n; ++j)
    for (std::size_t k = 0; k < kTogether; ++k)
      sum[j] += weights[k] * static_cast<double>(rows[k][j]);
}

// Columns `begin` to `end` of all rows, into one.
template <class Real>
void AddColumns(const PlacedRows<Real>& from, const double* weights, std::size_t begin,
                std::size_t end, double* sum) {
  constexpr std::size_t kBlock = 1024;  // of the sum: it stays in the first cache
  for (; begin < end; begin += kBlock) {
    const std::size_t n = std::min(kBlock, end - begin);
    const Real* rows[kTogether];
    double factors[kTogether];
    std::size_t count = 0;
    for (std::size_t r = 0; r < from.records * from.positions; ++r) {
      const double weight = weights[r / from.positions];
      if (weight == 0) continue;
      rows[count] = from.g + r * from.width + begin;
      factors[count] = weight;
      if (++count < kTogether) continue;
      AddRows(rows, factors, n, sum + begin);
      count = 0;
    }
    if (count == 0) continue;
    for (std::size_t k = count; k < kTogether; ++k) rows[k] = rows[0], factors[k] = 0;
    AddRows(rows, factors, n, sum + begin);
  }
}

template <class Real>
void AddPlaced(const PlacedRows<Real>& from, const double* weights, std::size_t begin,
               std::size_t end, double* sum) {
  const Wide d;
  for (std::size_t r = 0; r < from.records * from.positions; ++r) {
    const double weight = weights[r / from.positions];
    if (weight == 0) continue;
    const Real* row = from.g + r * from.width;
    double* HWY_RESTRICT into = sum + static_cast<std::size_t>(from.places[r]) * from.width;
    std::size_t j = begin;
    for (; j + hn::Lanes(d) <= end; j += hn::Lanes(d))
      hn::StoreU(hn::MulAdd(hn::Set(d, weight), Load(row + j), hn::LoadU(d, into + j)), d,
                 into + j);
    for (; j < end; ++j) into[j] += weight * static_cast<double>(row[j]);
  }
}

template <class Real>
void AddShare(const PlacedRows<Real>& from, const double* weights, std::size_t begin,
              std::size_t end, double* sum) {
  (from.places == nullptr ? AddColumns<Real> : AddPlaced<Real>)(from, weights, begin, end, sum);
}

void AddFloats(const PlacedRows<float>& from, const double* weights, std::size_t begin,
               std::size_t end, double* sum) {
  AddShare(from, weights, begin, end, sum);
}
void AddDoubles(const PlacedRows<double>& from, const double* weights, std::size_t begin,
                std::size_t end, double* sum) {
  AddShare(from, weights, begin, end, sum);
}

}  // namespace discreet::mechanism::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::mechanism {
HWY_EXPORT(AddFloats);
HWY_EXPORT(AddDoubles);
namespace {

// Runs f(begin, end) over `units` in even shares of at least `least`, a multiple of `step` but for
// the last.
//   work: operations in all; few of them are done by this thread
template <class F>
void in_even_shares(std::size_t units, std::size_t least, std::size_t step, double work,
                    const numerics::Team* team, F f) {
  const std::size_t most =
      work < 0x1p17 || team == nullptr ? 1 : std::min<std::size_t>(64, units / least);
  if (most < 2) return f(0, units);
  const std::size_t share = ((units + most - 1) / most + step - 1) / step * step;
  (*team)((units + share - 1) / share,
          [&](std::size_t k) { f(k * share, std::min(units, (k + 1) * share)); });
}

double product(std::size_t a, std::size_t b, std::size_t c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

void require(bool holds, const char* sentence) {
  if (!holds) invalid_input("ClippedSum", "{}", sentence);
}

}  // namespace

template <class Real>
void add_outer_sum(const OuterFactors<Real>& factors, std::span<const double> weights,
                   const numerics::Team* team, bool first, std::span<double> sum) {
  const std::size_t inputs = factors.inputs, outputs = factors.outputs;
  const std::size_t rows = factors.records * factors.positions;
  require(weights.size() == factors.records && sum.size() == inputs * outputs,
          "the size of the sum does not match its factors");
  if (sum.empty()) return;
  if (rows == 0) {
    if (first) std::ranges::fill(sum, 0.0);
    return;
  }
  std::vector<double> by_row;
  if (factors.positions > 1) {
    by_row.reserve(rows);
    for (const double weight : weights) by_row.insert(by_row.end(), factors.positions, weight);
  }
  const double* factor = factors.positions > 1 ? by_row.data() : weights.data();
  const bool narrow = factors.positions > 1 && std::min(inputs, outputs) >= kLeastBinary32Columns;
  const auto add = [&]<class Product>(Product, std::size_t run, std::size_t record) {
    // The longer side is shared: each share reads all of the other.
    const bool by_output = outputs >= inputs;
    in_even_shares(by_output ? outputs : inputs, 128, by_output ? 12 : 32,
                   product(rows, inputs, outputs), team, [&](std::size_t begin, std::size_t end) {
                     OuterScratch scratch;
                     const std::size_t o = by_output ? begin : 0, o_end = by_output ? end : outputs;
                     const std::size_t i = by_output ? 0 : begin, i_end = by_output ? inputs : end;
                     add_outer<Product>(Rows<Real>{factors.g + o, outputs, 1, factor}, o_end - o,
                                        Rows<Real>{factors.a + i, inputs}, i_end - i, rows, run,
                                        sum.data() + o * inputs + i, inputs, first, scratch,
                                        record);
                   });
  };
  if constexpr (std::is_same_v<Real, float>)
    if (narrow) return add(float{}, kBinary32Rows, factors.positions);
  add(double{}, 256, 256);
}

template <class Real>
void add_placed_sum(const PlacedRows<Real>& rows, std::span<const double> weights,
                    const numerics::Team* team, std::span<double> sum) {
  if (rows.width == 0 || rows.records == 0) return;
  require(weights.size() == rows.records && sum.size() % rows.width == 0 && !sum.empty(),
          "the size of the sum does not match its rows");
  const auto places = static_cast<std::int64_t>(sum.size() / rows.width);
  if (rows.places != nullptr)
    for (std::size_t r = 0; r < rows.records * rows.positions; ++r)
      require(rows.places[r] >= 0 && rows.places[r] < places, "a place is outside the table");
  in_even_shares(rows.width, 64, 16, product(rows.records, rows.positions, rows.width), team,
                 [&](std::size_t begin, std::size_t end) {
                   if constexpr (std::is_same_v<Real, float>)
                     HWY_DYNAMIC_DISPATCH(AddFloats)(rows, weights.data(), begin, end, sum.data());
                   else
                     HWY_DYNAMIC_DISPATCH(AddDoubles)(rows, weights.data(), begin, end, sum.data());
                 });
}

template void add_outer_sum(const OuterFactors<float>&, std::span<const double>,
                            const numerics::Team*, bool, std::span<double>);
template void add_outer_sum(const OuterFactors<double>&, std::span<const double>,
                            const numerics::Team*, bool, std::span<double>);
template void add_placed_sum(const PlacedRows<float>&, std::span<const double>,
                             const numerics::Team*, std::span<double>);
template void add_placed_sum(const PlacedRows<double>&, std::span<const double>,
                             const numerics::Team*, std::span<double>);

}  // namespace discreet::mechanism
#endif
