#include "discreet/random/subsets.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/random/draw_each_impl.h"
#include "discreet/random/exact.h"

namespace discreet::random {
namespace {

constexpr std::size_t kPlanes = 16;         // words drawn in bulk for a group of 64 records
constexpr std::size_t kGroupsPerTile = 64;  // 8 KiB of words at a time

// The binary digits of a rate in (0, 1) after the point.
struct BinaryFraction {
  std::uint64_t significand;  // rate = significand · 2^-length, significand odd or 0
  int length;

  explicit BinaryFraction(double rate) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(rate);
    const int biased = static_cast<int>(bits >> 52);
    significand = bits & ((std::uint64_t{1} << 52) - 1);
    if (biased > 0) significand |= std::uint64_t{1} << 52;
    length = 1075 - std::max(biased, 1);
  }
  bool digit(int i) const noexcept {  // of weight 2^-(i+1)
    const int place = length - 1 - i;
    return place < 64 && place >= 0 && ((significand >> place) & 1);
  }
};

// Compares 64 uniform numbers with the rate at once, digit by digit: bit j of the i-th word is
// digit i of record j's number. Stops when all are decided, after 7.3 words on average.
template <class NextWord>
std::uint64_t below_rate(const BinaryFraction& rate, NextWord&& next) {
  std::uint64_t undecided = ~std::uint64_t{0};
  std::uint64_t below = 0;
  for (int i = 0; i < rate.length && undecided != 0; ++i) {
    const std::uint64_t word = next(i);
    if (rate.digit(i)) {
      below |= undecided & ~word;
      undecided &= word;
    } else {
      undecided &= ~word;
    }
  }
  return below;
}

void append_group(std::uint64_t mask, std::uint64_t group, Records records,
                  std::vector<std::uint64_t>& out) {
  for (; mask != 0; mask &= mask - 1) {
    const std::uint64_t record = 64 * group + static_cast<std::uint64_t>(std::countr_zero(mask));
    if (record >= records.begin && record < records.end) out.push_back(record);
  }
}

// The part of a Poisson subset in the groups [begin, end).
std::vector<std::uint64_t> draw_groups(const Generator& generator, const Position& position,
                                       Records records, const BinaryFraction& rate,
                                       std::uint64_t begin, std::uint64_t end) {
  std::vector<std::uint64_t> out;
  BlockSource source(generator), rare(generator);
  std::array<std::uint64_t, kPlanes * kGroupsPerTile> tile;
  for (std::uint64_t first = begin; first < end; first += kGroupsPerTile) {
    const std::size_t groups = std::min<std::uint64_t>(kGroupsPerTile, end - first);
    source.read(position.high, position.block(first * kPlanes / 2),
                std::span(tile).first(groups * kPlanes));
    for (std::size_t g = 0; g < groups; ++g) {
      WordReader more(rare, position, (first + g) * kPlanes / 2);
      const std::uint64_t mask = below_rate(rate, [&](int i) {
        return static_cast<std::size_t>(i) < kPlanes ? tile[g * kPlanes + i] : more.next();
      });
      append_group(mask, first + g, records, out);
    }
  }
  return out;
}

// Uniform on {0 … bound − 1} from the block of an index: the high half of word · bound (Lemire
// 2019) when that is unbiased, which fails with probability below bound/2^64; then the reserve.
class BoundedDraw {
 public:
  BoundedDraw(const Generator& generator, const Position& position)
      : position_(position), source_(generator), rare_(generator) {}

  std::uint64_t operator()(std::uint64_t index, std::uint64_t bound) {
    if (index < tile_first_ || index >= tile_first_ + kTile || !drawn_) {
      tile_first_ = index;
      drawn_ = true;
      source_.read(position_.high, position_.block(index), tile_);
    }
    const Uint128 product = Uint128{tile_[2 * (index - tile_first_)]} * bound;
    const auto low = static_cast<std::uint64_t>(product);
    if (low < bound && low < (0 - bound) % bound) {
      WordReader words(rare_, position_, index);
      return uniform_below(words, bound);
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

 private:
  static constexpr std::uint64_t kTile = 256;
  Position position_;
  BlockSource source_, rare_;
  std::uint64_t tile_first_ = 0;
  bool drawn_ = false;
  std::array<std::uint64_t, 2 * kTile> tile_;
};

}  // namespace

std::vector<std::uint64_t> poisson_subset(const Generator& generator, const Position& position,
                                          Records records, double rate, int threads) {
  if (!(rate >= 0 && rate <= 1)) {
    invalid_config("poisson_subset", "the sampling rate is {}; it must be in [0, 1]", rate);
  }
  if (records.end > kIndexLimit) {
    invalid_input("poisson_subset", "record {} is out of range; only {} records can be numbered",
                  records.end, kIndexLimit);
  }
  position.require_indices(0, poisson_indices(records.end));
  std::vector<std::uint64_t> out;
  if (records.begin >= records.end || rate == 0) return out;
  if (rate == 1) {
    out.resize(records.end - records.begin);
    std::iota(out.begin(), out.end(), records.begin);
    return out;
  }
  const BinaryFraction fraction(rate);
  const std::uint64_t first = records.begin / 64;
  const std::uint64_t groups = (records.end + 63) / 64 - first;
  std::map<std::size_t, std::vector<std::uint64_t>> parts;  // by the first group of each
  std::mutex mutex;
  parallel_for_costly(groups, 64, threads, [&](std::size_t begin, std::size_t end) {
    auto part = draw_groups(generator, position, records, fraction, first + begin, first + end);
    const std::lock_guard lock(mutex);
    parts.emplace(begin, std::move(part));
  });
  for (const auto& [begin, part] : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::vector<std::uint64_t> permutation(const Generator& generator, const Position& position,
                                       std::uint64_t n) {
  position.require_indices(0, n);
  std::vector<std::uint64_t> order(n);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  BoundedDraw draw(generator, position);
  for (std::uint64_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + draw(i, n - i)]);
  return order;
}

std::vector<std::uint64_t> fixed_size_subset(const Generator& generator, const Position& position,
                                             std::uint64_t population, std::uint64_t size) {
  if (size > population) {
    invalid_config("fixed_size_subset", "cannot choose {} of {} records; request fewer", size,
                   population);
  }
  position.require_indices(0, size);
  std::unordered_set<std::uint64_t> chosen;
  chosen.reserve(size);
  BoundedDraw draw(generator, position);
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t last = population - size + i;
    if (!chosen.insert(draw(i, last + 1)).second) chosen.insert(last);
  }
  std::vector<std::uint64_t> out(chosen.begin(), chosen.end());
  std::sort(out.begin(), out.end());
  return out;
}

void assign_bins(const Generator& generator, const Position& position, std::uint32_t bins,
                 std::span<std::uint32_t> out, int threads) {
  if (bins == 0) {
    invalid_config("assign_bins", "the number of bins is 0; it must be at least 1");
  }
  position.require_indices(position.coordinate, out.size());
  parallel_for_costly(out.size(), 8, threads, [&](std::size_t begin, std::size_t end) {
    BoundedDraw draw(generator, position);
    for (std::size_t i = begin; i < end; ++i) {
      out[i] = static_cast<std::uint32_t>(draw(position.coordinate + i, bins));
    }
  });
}

}  // namespace discreet::random
