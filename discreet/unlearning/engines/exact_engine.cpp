#include "discreet/unlearning/engines/exact_engine.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "discreet/numerics/rounding.h"
#include "discreet/unlearning/dense_impl.h"
#include "discreet/unlearning/records_impl.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "ExactEngine";
__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

std::int64_t grid_of(std::string_view name, double value, int bits) {
  require_positive(kOp, name, value);
  const double scaled = std::ldexp(value, bits);
  if (scaled != std::floor(scaled) || scaled > 0x1p30) {
    refuse(kOp, name, value, "a bound whose product with 2^bits is an integer of at most 2^30");
  }
  return static_cast<std::int64_t>(scaled);
}

std::uint64_t root_rounded_up(std::uint64_t n) {
  auto r = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (r > 0 && r * r >= n) --r;
  while (r * r < n) ++r;
  return r;
}

// The magnitude as a double, never below it.
double rounded_up(UnsignedWide magnitude) {
  return numerics::next_up(static_cast<double>(magnitude));
}

}  // namespace

ExactEngine::ExactEngine(ExactOptions options) : o_(options) {
  if (o_.dimension < 1 || o_.dimension > 64) {
    refuse(kOp, "dimension", static_cast<double>(o_.dimension), "1 to 64");
  }
  if (o_.bits < 1 || o_.bits > 30) refuse(kOp, "bits", o_.bits, "1 to 30");
  if (o_.N < 1 || o_.n_max < 1) refuse(kOp, "N or n_max", 0, "1 or more");
  Q_ = grid_of("R", o_.R, o_.bits);
  Q_y_ = grid_of("Y", o_.Y, o_.bits);
  require_positive(kOp, "lambda", o_.lambda);
  require_positive(kOp, "tolerance", o_.tolerance);
  const double ridge =
      std::nearbyint(std::ldexp(o_.lambda * static_cast<double>(o_.N), 2 * o_.bits));
  if (!(ridge >= 1 && ridge < 0x1p62)) {
    refuse(kOp, "lambda N 4^bits", ridge, "a value from 1 to 2^62: change lambda, N or bits");
  }
  ridge_ = static_cast<std::int64_t>(ridge);
  const auto largest =
      static_cast<UnsignedWide>(std::max(Q_, Q_y_)) * static_cast<UnsignedWide>(Q_);
  if (static_cast<UnsignedWide>(o_.n_max) * largest >= (UnsignedWide{1} << 62)) {
    refuse(kOp, "n_max", static_cast<double>(o_.n_max),
           "fewer records or fewer bits: the sums would exceed 63 bits");
  }
  gram_.assign(o_.dimension * (o_.dimension + 1) / 2, 0);
  moment_.assign(o_.dimension, 0);
}

std::vector<std::int32_t> ExactEngine::quantise(std::span<const double> x, double y) const {
  std::vector<std::int32_t> row(o_.dimension + 1);
  std::uint64_t square = 0;  // at most 64 · 2^60 only if every coordinate is at its bound
  UnsignedWide exact = 0;
  for (std::size_t i = 0; i < o_.dimension; ++i) {
    const double q = std::nearbyint(std::ldexp(std::clamp(x[i], -o_.R, o_.R), o_.bits));
    row[i] = static_cast<std::int32_t>(q);
    exact += static_cast<UnsignedWide>(static_cast<std::int64_t>(row[i]) * row[i]);
  }
  if (exact > static_cast<UnsignedWide>(Q_) * static_cast<UnsignedWide>(Q_)) {
    // Norms up to 2^33 have squares of 66 bits: shift before the root, which only rounds it up.
    int shift = 0;
    while ((exact >> shift) >= (UnsignedWide{1} << 62)) shift += 2;
    square = static_cast<std::uint64_t>(exact >> shift) + (shift > 0);
    const std::uint64_t norm = root_rounded_up(square) << (shift / 2);
    for (std::size_t i = 0; i < o_.dimension; ++i) {
      const std::int64_t magnitude = std::abs(static_cast<std::int64_t>(row[i]));
      const auto shrunk = static_cast<std::int64_t>(static_cast<UnsignedWide>(magnitude) *
                                                    static_cast<UnsignedWide>(Q_) /
                                                    static_cast<UnsignedWide>(norm));
      row[i] = static_cast<std::int32_t>(row[i] < 0 ? -shrunk : shrunk);
    }
  }
  row[o_.dimension] =
      static_cast<std::int32_t>(std::nearbyint(std::ldexp(std::clamp(y, -o_.Y, o_.Y), o_.bits)));
  return row;
}

std::vector<double> ExactEngine::rounded(std::span<const double> x) const {
  const std::vector<std::int32_t> row = quantise(x, 0);
  std::vector<double> out;
  for (std::size_t i = 0; i < o_.dimension; ++i) out.push_back(std::ldexp(row[i], -o_.bits));
  return out;
}

void ExactEngine::add(const std::int32_t* row, bool subtract) noexcept {
  const std::int64_t sign = subtract ? -1 : 1;
  std::uint64_t* gram = gram_.data();
  for (std::size_t i = 0; i < o_.dimension; ++i) {
    const std::int64_t q = sign * row[i];
    for (std::size_t j = 0; j <= i; ++j) *gram++ += static_cast<std::uint64_t>(q * row[j]);
    moment_[i] += static_cast<std::uint64_t>(q * row[o_.dimension]);
  }
}

void ExactEngine::insert(RecordId id, std::span<const double> x, double y) {
  require_record("ExactEngine.insert", o_.dimension, x, y);
  require_new(*this, id);
  require_room(kOp, *this, o_.n_max);
  const std::vector<std::int32_t> row = quantise(x, y);
  rows_.insert(rows_.end(), row.begin(), row.end());
  row_ids_.push_back(id);
  ids_.emplace(id, row_ids_.size() - 1);
  add(row.data(), false);
}

void ExactEngine::erase(std::span<const RecordId> ids) {
  require_live_batch(*this, ids);
  const std::size_t width = o_.dimension + 1;
  for (const RecordId id : ids) {
    const std::size_t at = ids_.at(id);
    add(&rows_[at * width], true);
    const std::size_t last = row_ids_.size() - 1;
    if (at != last) {
      std::copy_n(&rows_[last * width], width, &rows_[at * width]);
      row_ids_[at] = row_ids_[last];
      ids_[row_ids_[at]] = at;
    }
    std::fill_n(&rows_[last * width], width, 0);
    rows_.resize(last * width);
    row_ids_.pop_back();
    ids_.erase(id);
  }
}

std::optional<double> ExactEngine::residual(std::span<double> w, std::span<double> out) const {
  const std::size_t d = o_.dimension;
  double largest = 0;
  for (const double v : w) largest = std::max(largest, std::abs(v));
  if (!(largest < 0x1p40)) return std::nullopt;
  // |W| < 2^53 keeps W 2^-k a double and every sum below 2^124.
  const int k = std::clamp(52 - std::ilogb(std::max(largest, 0x1p-3)), 0, 55);
  std::vector<std::int64_t> W(d);
  for (std::size_t i = 0; i < d; ++i) {
    W[i] = static_cast<std::int64_t>(std::nearbyint(std::ldexp(w[i], k)));
    w[i] = std::ldexp(static_cast<double>(W[i]), -k);
  }
  const auto entry = [&](std::size_t i, std::size_t j) {
    const std::size_t a = std::max(i, j), b = std::min(i, j);
    return static_cast<std::int64_t>(gram_[a * (a + 1) / 2 + b]);
  };
  double bound = 0;
  for (std::size_t i = 0; i < d; ++i) {
    Wide sum = static_cast<Wide>(ridge_) * W[i] -
               static_cast<Wide>(static_cast<std::int64_t>(moment_[i])) * (Wide{1} << k);
    for (std::size_t j = 0; j < d; ++j) sum += static_cast<Wide>(entry(i, j)) * W[j];
    out[i] = std::ldexp(static_cast<double>(sum), -k);
    const double magnitude =
        rounded_up(static_cast<UnsignedWide>(sum < 0 ? -sum : sum)) / static_cast<double>(ridge_);
    bound += numerics::next_up(magnitude * magnitude * (1 + 0x1p-50));
    bound = numerics::next_up(bound);
  }
  return std::ldexp(numerics::round_up(std::sqrt(bound), 4), -k);
}

double ExactEngine::distance_bound(std::span<const double> w) const {
  require_record("ExactEngine.distance_bound", o_.dimension, w, 0);
  std::vector<double> rounded(w.begin(), w.end()), unused(w.size());
  const auto bound = residual(rounded, unused);
  if (!bound) refuse(kOp, "a parameter", w[0], "parameters below 2^40");
  double moved = 0;  // by rounding to the grid of the residual
  for (std::size_t i = 0; i < w.size(); ++i) {
    moved += numerics::next_up(std::abs(w[i] - rounded[i]));
    moved = numerics::next_up(moved);
  }
  return numerics::next_up(*bound + moved);
}

Release ExactEngine::publish() {
  const std::size_t d = o_.dimension;
  std::vector<double> factor(d * d);
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      auto entry = static_cast<std::int64_t>(gram_[i * (i + 1) / 2 + j]);
      if (i == j) entry += ridge_;
      factor[i * d + j] = static_cast<double>(entry);
    }
  }
  std::vector<double> w(d), step(d);
  for (std::size_t i = 0; i < d; ++i) {
    w[i] = static_cast<double>(static_cast<std::int64_t>(moment_[i]));
  }
  if (cholesky(factor, d)) {
    cholesky_solve(factor, d, w);
    for (int round = 0; round < 10; ++round) {
      const auto bound = residual(w, step);
      if (bound && *bound <= o_.tolerance) {
        return {std::move(w), 0, o_.tolerance,
                "exact: the model is a function of the live records alone; requests fixed in "
                "advance; earlier releases are not covered"};
      }
      cholesky_solve(factor, d, step);
      for (std::size_t i = 0; i < d; ++i) w[i] -= step[i];
    }
  }
  fail(ErrorCode::kAccountantDivergence, kOp,
       "no solution within {} was found in binary64; raise lambda or tolerance", o_.tolerance);
}

Digest ExactEngine::state_digest() const {
  Sha256 hash;
  hash.update(bytes_of("discreet/unlearning/exact/1"));
  const auto word = [&](std::uint64_t value) {
    std::array<std::uint8_t, 8> bytes;
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
    hash.update(bytes);
  };
  word(o_.dimension);
  word(static_cast<std::uint64_t>(o_.bits));
  word(static_cast<std::uint64_t>(Q_));
  word(static_cast<std::uint64_t>(Q_y_));
  word(static_cast<std::uint64_t>(ridge_));
  word(live());
  for (const std::uint64_t v : gram_) word(v);
  for (const std::uint64_t v : moment_) word(v);
  return hash.finish();
}

}  // namespace discreet::unlearning
