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

// Calls f(begin, end) on contiguous, nearly equal ranges that together are the items [0, count),
// from at most `threads` threads, the caller's included; once and inline with threads <= 1 or one
// item; never when count is 0. For items that are work enough for a thread each: tiles, records,
// tensors.
//
// Which thread takes which range is fixed, and a result must not depend on it: f writes only what
// belongs to its items, and whoever merges results does so in ascending order. Threads are started
// per call; there is no pool. If calls throw, all ranges are still finished, then the exception of
// the lowest range is thrown.
template <class F>
void parallel_items(std::size_t count, int threads, F&& f) {
  if (count == 0) return;
  const std::size_t asked = threads < 1 ? 1 : static_cast<std::size_t>(threads);
  const std::size_t shares = asked < count ? asked : count;
  if (shares == 1) {
    f(std::size_t{0}, count);
    return;
  }
  std::vector<std::exception_ptr> failures(shares);
  const auto run = [&](std::size_t share) {
    try {
      f(count * share / shares, count * (share + 1) / shares);
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

// The same over the elements of an array: f(begin, end) on ranges that begin at multiples of kChunk
// and end at one or at count, from no more threads than have kSmallestShare elements each to do. f
// writes an element, or one value per chunk.
template <class F>
void parallel_for(std::size_t count, int threads, F&& f) {
  const std::size_t chunks = (count + kChunk - 1) / kChunk;
  const std::size_t most = (count + kSmallestShare - 1) / kSmallestShare;
  const int useful = static_cast<std::size_t>(threads < 1 ? 1 : threads) < most
                         ? threads
                         : static_cast<int>(most < 4096 ? most : 4096);
  parallel_items(chunks, useful, [&](std::size_t begin, std::size_t end) {
    f(begin * kChunk, end == chunks ? count : end * kChunk);
  });
}

}  // namespace discreet::numerics
