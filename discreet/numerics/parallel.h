#pragma once

#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace discreet::numerics {

// The unit in which work over arrays is cut: always 256 elements, whatever the number of threads.
inline constexpr std::size_t kChunk = 256;

// Below this many elements a thread costs more than it brings.
inline constexpr std::size_t kSmallestShare = 64 * kChunk;

// Calls f(begin, end) on contiguous ranges that together are [0, count), from at most `threads`
// threads, the caller's included. Ranges begin at multiples of kChunk and end at one or at count.
// With threads <= 1, or little work, f is called once, inline; never when count is 0.
//
// Which thread takes which range is fixed, and a result must not depend on it: f writes only what
// belongs to its range (an element, or one value per chunk), and whoever merges the chunks does so
// in ascending order. Threads are started per call; there is no pool.
// If calls throw, all ranges are still finished, then the exception of the lowest range is thrown.
template <class F>
void parallel_for(std::size_t count, int threads, F&& f) {
  if (count == 0) return;
  const std::size_t chunks = (count + kChunk - 1) / kChunk;
  std::size_t shares = threads < 1 ? 1 : static_cast<std::size_t>(threads);
  const std::size_t most = (count + kSmallestShare - 1) / kSmallestShare;
  if (shares > most) shares = most;
  if (shares == 1) {
    f(std::size_t{0}, count);
    return;
  }
  std::vector<std::exception_ptr> failures(shares);
  const auto run = [&](std::size_t share) {
    const std::size_t begin = chunks * share / shares * kChunk;
    const std::size_t end = share + 1 == shares ? count : chunks * (share + 1) / shares * kChunk;
    try {
      f(begin, end);
    } catch (...) {
      failures[share] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(shares - 1);
    for (std::size_t share = 1; share < shares; ++share) others.emplace_back(run, share);
    run(0);
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace discreet::numerics
