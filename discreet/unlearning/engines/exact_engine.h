#pragma once

#include <optional>
#include <unordered_map>

#include "discreet/base/hash.h"
#include "discreet/unlearning/engines/engine.h"

namespace discreet::unlearning {

struct ExactOptions {
  std::size_t dimension = 1;  // 1 to 64
  double R = 1;               // bound of a record's norm, > 0
  double Y = 1;               // bound of |y|, > 0
  int bits = 20;              // features and labels are multiples of 2^-bits; R 2^bits and Y 2^bits
                              // must be integers of at most 2^30
  double lambda = 0.1;        // > 0
  std::uint64_t N = 1;        // the public divisor of the loss, >= 1; never the row count
  std::uint64_t n_max = 1;    // maximum number of live records; further inserts are rejected
  double tolerance = 1e-9;    // > 0: distance of a release from the exact solution
};

// Ridge regression from integer statistics: the minimiser of
//   (1/N) sum (y - x'w)^2 / 2 + (lambda/2) |w|^2
// over records rounded to a grid. The state consists of the integers n, sum q q' and sum q q_y, so
// it is a function of the multiset of live records: after a delete it equals, bit for bit, the
// state without the record, for any order, batches or repetitions. A record is clamped to ±R,
// rounded to the grid, and shrunk until its norm is at most R. The rounded records of live ids are
// kept for later subtraction.
// Proof: exact_engine.md
class ExactEngine final : public Engine {
 public:
  // Throws kInvalidInput unless n_max R^2, n_max R Y and lambda N, in grid units, are below 2^63.
  explicit ExactEngine(ExactOptions options);

  std::string_view name() const noexcept override { return "exact"; }
  std::size_t dimension() const noexcept override { return o_.dimension; }
  std::uint64_t live() const noexcept override { return ids_.size(); }
  bool holds(RecordId id) const noexcept override { return ids_.count(id) > 0; }
  void insert(RecordId id, std::span<const double> x, double y) override;
  void erase(std::span<const RecordId> ids) override;
  // The solution, within `tolerance` of the exact one; the distance is certified in integers.
  // Throws kAccountantDivergence if binary64 cannot reach it (raise lambda or tolerance). The bits
  // are the same for equal live records on every IEEE platform.
  Release publish() override;

  const ExactOptions& options() const noexcept { return o_; }
  // x as `insert` keeps it: clamped, rounded and shrunk. x: finite, of this dimension.
  std::vector<double> rounded(std::span<const double> x) const;

  // Records are in ascending order of ids, so that equal live records give equal bytes.
  Bytes save(Records records) const override;
  static ExactEngine restore(ByteView bytes);

  // SHA-256 of the options and the statistics: equal for equal multisets of live records.
  Digest state_digest() const;

  // A proven bound of |w - w*| from exact integer residuals, rounded up. Data-dependent:
  // confidential. Throws kInvalidInput for a w that is not finite or beyond 2^40.
  double distance_bound(std::span<const double> w) const;

 private:
  std::vector<std::int32_t> quantise(std::span<const double> x, double y) const;
  void add(const std::int32_t* row, bool subtract) noexcept;
  // A W 2^k - b 2^k in exact arithmetic, as doubles, for W = w rounded to 2^-k.
  std::optional<double> residual(std::span<double> w, std::span<double> out) const;

  ExactOptions o_;
  std::int64_t Q_, Q_y_, ridge_;
  std::vector<std::uint64_t> gram_;    // lower triangle row by row, two's complement
  std::vector<std::uint64_t> moment_;  // two's complement
  std::unordered_map<RecordId, std::size_t> ids_;
  std::vector<std::int32_t> rows_;  // dimension + 1 integers per record
  std::vector<RecordId> row_ids_;
};

}  // namespace discreet::unlearning
