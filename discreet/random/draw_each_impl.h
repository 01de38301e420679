#pragma once

#include <cstddef>
#include <span>

#include "discreet/numerics/parallel.h"
#include "discreet/random/generator.h"
#include "discreet/random/word_reader.h"

namespace discreet::random {

// numerics::parallel_for for elements that cost about `cost` times as much as an element of a sum,
// so that fewer of them are worth a thread. cost: a power of two, at most 256.
template <class F>
void parallel_for_costly(std::size_t count, std::size_t cost, int threads, F&& f) {
  numerics::parallel_for(count * cost, threads,
                         [&](std::size_t begin, std::size_t end) { f(begin / cost, end / cost); });
}

// out[i] = sample(the reserve words of index coordinate + i): one index per coordinate.
template <class T, class Sample>
void draw_each(const Generator& generator, const Position& position, std::span<T> out, int threads,
               const Sample& sample) {
  position.require_indices(position.coordinate, out.size());
  parallel_for_costly(out.size(), 32, threads, [&](std::size_t begin, std::size_t end) {
    BlockSource source(generator);
    for (std::size_t i = begin; i < end; ++i) {
      WordReader words(source, position, position.coordinate + i);
      out[i] = static_cast<T>(sample(words));
    }
  });
}

}  // namespace discreet::random
