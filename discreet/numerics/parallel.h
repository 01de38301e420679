#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <vector>

namespace discreet::numerics {

// The unit in which work over arrays is cut: always 256 elements, whatever the number of threads.
inline constexpr std::size_t kChunk = 256;

// Below this many elements a thread costs more than it brings.
inline constexpr std::size_t kSmallestShare = 64 * kChunk;

// Runs task(0) … task(n - 1), each once, on threads that the caller keeps, and returns when all are
// done. Tasks do not throw. Where another pool of threads holds the processors, as PyTorch's does,
// new threads would wait for it.
using Team = std::function<void(std::size_t n, const std::function<void(std::size_t)>& task)>;

// Calls task(context, share) once for every share below `shares`, and returns when all are done.
// The task must not throw. What parallel_items is made of; call that.
void run_shares(std::size_t shares, void (*task)(void* context, std::size_t share) noexcept,
                void* context);

// Calls f(begin, end) on contiguous, nearly equal ranges that together are the items [0, count),
// from at most `threads` threads, the caller's included; once and inline with threads <= 1 or one
// item; never when count is 0. For items that are work enough for a thread each: tiles, records,
// tensors.
//
// The ranges depend on count and threads alone; which thread takes which does not matter, and a
// result must not depend on either: f writes only what belongs to its items, and whoever merges
// results does so in ascending order. If calls throw, all ranges are still finished, then the
// exception of the lowest range is thrown.
//
// The other threads belong to the process: they are started when first asked for, wait some
// microseconds for the next call before they sleep, and end with the process. They round as the
// caller does and take no signals. One call at a time has them: one from inside f, or from a second
// thread meanwhile, does all of its ranges on its own thread; so does any call when the system
// gives no thread. The caller also takes the ranges that no thread has begun when its own is done,
// so that a busy machine delays nothing. After fork() the child starts threads of its own; it must
// not return from an f inside of which it was forked.
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
