#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <span>

#include "discreet/numerics/parallel.h"
#include "discreet/random/generator.h"
#include "discreet/random/word_reader.h"

namespace discreet::random {

// Calls f(begin, end) on contiguous ranges of {0 … count − 1} from `threads` threads, and throws
// in the caller's thread what the first of them threw.
template <class F>
void in_parallel(std::size_t count, int threads, F&& f) {
  std::exception_ptr thrown;
  std::mutex mutex;
  numerics::parallel_for(count, threads, [&](std::size_t begin, std::size_t end) noexcept {
    try {
      f(begin, end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

// out[i] = sample(words of the reserve of index coordinate + i): one index per coordinate.
template <class T, class Sample>
void draw_each(const Generator& generator, const Position& position, std::span<T> out, int threads,
               const Sample& sample) {
  position.require_indices(position.coordinate, out.size());
  in_parallel(out.size(), threads, [&](std::size_t begin, std::size_t end) {
    BlockSource source(generator);
    for (std::size_t i = begin; i < end; ++i) {
      WordReader words(source, position, position.coordinate + i);
      out[i] = static_cast<T>(sample(words));
    }
  });
}

}  // namespace discreet::random
