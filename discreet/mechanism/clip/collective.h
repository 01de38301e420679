#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace discreet::mechanism {

// What several ranks need of each other to clip as one: sums and gathers in a fixed order. There is
// no other way for ranks to exchange values, and no reduction whose order is not fixed: the result
// of every operation has the same bits on every rank and in every run.
//
// All ranks call the same operations in the same order, with arrays of the same length. An
// implementation for processes wraps a library of theirs; run_ranks() below is one for threads.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const noexcept = 0;        // 0 <= rank < world_size
  virtual int world_size() const noexcept = 0;  // >= 1

  // values = the sum over ranks of values, elementwise in binary64: ((x_0 + x_1) + x_2) + ..., in
  // ascending order of ranks. Hierarchical: every node of consecutive ranks first sums its own in
  // ascending order; then the nodes are added in ascending order.
  virtual void all_reduce_sum(std::span<double> values) = 0;

  // The values of rank 0, then those of rank 1, and so on.
  virtual std::vector<double> all_gather(std::span<const double> values) = 0;

  // Returns when every rank has called it.
  virtual void barrier() = 0;
};

// Runs f(collective) once for every rank 0 ... world - 1, each on a thread of its own (rank 0 on
// the caller's), and returns when all have ended.
//   world            >= 1, otherwise kInvalidInput
//   ranks_per_node   0: flat. Otherwise hierarchical: ranks k n ... (k + 1) n - 1 are node k; the
//                    last node may have fewer.
// If f throws on a rank, every other rank that waits, now or later, ends with an Error of the same
// code and sentence; what was thrown first, on the lowest such rank, is thrown to the caller. Ranks
// that disagree on the operation or a length, and ranks that wait for one that has returned, end
// with kInvalidInput instead of waiting for ever.
void run_ranks(int world, const std::function<void(Collective&)>& f, int ranks_per_node = 0);

}  // namespace discreet::mechanism
