#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace discreet::mechanism {

// The communication that several ranks need to clip as one: sums and gathers in a fixed order.
// Ranks exchange values in no other way, and no reduction has an unspecified order: the result of
// every operation has the same bits on every rank and in every run.
//
// All ranks must call the same operations in the same order, with arrays of equal length. An
// implementation for processes wraps their library; run_ranks() below implements it for threads.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const noexcept = 0;        // 0 <= rank < world_size
  virtual int world_size() const noexcept = 0;  // >= 1

  // values = the sum over ranks of values, elementwise in binary64: ((x_0 + x_1) + x_2) + ..., in
  // ascending order of ranks. Hierarchical: every node of consecutive ranks first sums its own
  // values in ascending order; then the nodes are added in ascending order.
  virtual void all_reduce_sum(std::span<double> values) = 0;

  // The values of rank 0, then those of rank 1, and so on.
  virtual std::vector<double> all_gather(std::span<const double> values) = 0;

  // Returns when every rank has called it.
  virtual void barrier() = 0;
};

// Runs f(collective) once for every rank 0 ... world - 1, each on its own thread (rank 0 on the
// caller's), and returns when all have finished.
//   world            >= 1, otherwise kInvalidInput
//   ranks_per_node   0: flat. Otherwise hierarchical: ranks k n ... (k + 1) n - 1 are node k; the
//                    last node may have fewer.
// If f throws on a rank, every other rank that waits, now or later, fails with an Error of the same
// code and sentence; the first exception, of the lowest such rank, is rethrown to the caller. Ranks
// that disagree on the operation or a length, and ranks that wait for one that has returned, fail
// with kInvalidInput instead of waiting forever.
void run_ranks(int world, const std::function<void(Collective&)>& f, int ranks_per_node = 0);

}  // namespace discreet::mechanism
