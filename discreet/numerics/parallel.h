#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <vector>

namespace discreet::numerics {

// The unit in which work on arrays is divided: 256 elements, independent of the number of threads.
inline constexpr std::size_t kChunk = 256;

// With fewer elements than this per thread, a thread costs more than it saves.
inline constexpr std::size_t kSmallestShare = 64 * kChunk;

// Runs task(0) … task(n - 1), each once, on threads that the caller owns, and returns when all are
// done. Tasks must not throw. Used where another thread pool, such as PyTorch's, occupies the
// processors: threads of our own would wait for it.
using Team = std::function<void(std::size_t n, const std::function<void(std::size_t)>& task)>;

// Calls task(context, share) once for every share below `shares`, and returns when all are done.
// The task must not throw. This is the building block of parallel_items; call that instead.
void run_shares(std::size_t shares, void (*task)(void* context, std::size_t share) noexcept,
                void* context);

// Calls f(begin, end) on contiguous ranges of nearly equal size that together cover the items [0,
// count), on at most `threads` threads including the caller's. With threads <= 1 or one item it
// calls f once, inline; with count = 0, never. Use it for items that are each worth a thread:
// tiles, records, tensors.
//
// The ranges depend only on count and threads. A result must depend neither on the ranges nor on
// which thread runs them: f writes only the results of its own items, and the caller merges results
// in ascending order. If calls throw, all ranges still finish; then the exception of the lowest
// range is rethrown.
//
// The other threads belong to the process: they start on first use, wait some microseconds for the
// next call before they sleep, and end with the process. They use the caller's rounding mode and
// block signals. Only one call at a time can use them: a nested call, or a concurrent call from
// another thread, runs all of its ranges on its own thread, as does any call if the system cannot
// create a thread. When the caller has finished its own range it also takes ranges that no thread
// has started, so a busy machine does not delay the call. After fork() the child starts its own
// threads; a child forked inside f must not return from that f.
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
  auto run = [&](std::size_t share) noexcept {
    try {
      f(count * share / shares, count * (share + 1) / shares);
    } catch (...) {
      failures[share] = std::current_exception();
    }
  };
  run_shares(
      shares,
      [](void* context, std::size_t share) noexcept {
        (*static_cast<decltype(run)*>(context))(share);
      },
      &run);
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// The same for the elements of an array: f(begin, end) on ranges that start at multiples of kChunk
// and end at one or at count. It uses at most as many threads as have kSmallestShare elements each.
// f must write only the elements of its range, or one value per chunk.
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
