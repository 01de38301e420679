// Clipping of explicit per-sample gradients beside one plain pass over them: the same gradients
// summed over the records, unclipped, into the same binary64 sum by the same kernel. Sums start at
// zero, as those of an optimizer step do.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>

#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/numerics/parallel.h"

namespace {

using namespace discreet::mechanism;

constexpr std::size_t kParameters = 10'000'000;
constexpr std::size_t kRecords = 64;

// kParameters in equal square-ish layers.
ModelLayout layout_of(std::size_t layers) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < layers; ++i)
    tensors.push_back({.name = "layer" + std::to_string(i) + ".weight",
                       .shape = {kParameters / layers / 100, 100}});
  return ModelLayout(std::move(tensors));
}

// 2.56 GB, the same memory for every benchmark.
const float* values() {
  static const auto all = [] {
    auto x = std::make_unique_for_overwrite<float[]>(kParameters * kRecords);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < kParameters * kRecords; ++i) {
      state = state * 1664525u + 1013904223u;
      x[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    }
    return x;
  }();
  return all.get();
}

PerSampleGradients<float> gradients_of(const ModelLayout& layout) {
  PerSampleGradients<float> gradients{kRecords, {}};
  const float* next = values();
  for (std::size_t i = 0; i < layout.size(); ++i) {
    gradients.tensors.emplace_back(next, kRecords * layout.elements(i));
    next += kRecords * layout.elements(i);
  }
  return gradients;
}

void clear(benchmark::State& state, GradientSum& sum) {
  state.PauseTiming();
  std::ranges::fill(sum.values(), 0.0);
  state.ResumeTiming();
}

void plain(benchmark::State& state) {
  const ModelLayout layout = layout_of(static_cast<std::size_t>(state.range(0)));
  const auto gradients = gradients_of(layout);
  GradientSum sum(layout);
  const std::vector<double> ones(kRecords, 1.0);
  for (auto _ : state) {
    clear(state, sum);
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const std::size_t n = layout.elements(i);
      discreet::numerics::parallel_for(
          n, static_cast<int>(state.range(1)), [&](std::size_t begin, std::size_t end) {
            constexpr std::size_t kPiece = 16384;
            for (; begin < end; begin += kPiece) {
              const float* rows[kRecords];
              for (std::size_t r = 0; r < kRecords; ++r)
                rows[r] = gradients.tensors[i].data() + r * n + begin;
              kernels::add_rows(rows, ones.data(), kRecords, 0, std::min(kPiece, end - begin),
                                sum.tensor(i).data() + begin);
            }
          });
    }
  }
  benchmark::DoNotOptimize(sum.values().data());
}

void clip(benchmark::State& state) {
  const ModelLayout layout = layout_of(static_cast<std::size_t>(state.range(0)));
  const auto gradients = gradients_of(layout);
  const Cut cut = state.range(2) != 0 ? Cut::kLayer : Cut::kFlat;
  const ClipPlan plan = clip_plan(layout, cut, 1.0);
  GradientSum sum(layout);
  for (auto _ : state) {
    clear(state, sum);
    benchmark::DoNotOptimize(
        clip_per_sample(layout, gradients, plan, {.threads = static_cast<int>(state.range(1))}, sum)
            .norms.data());
  }
}

// layers, threads (, per layer)
BENCHMARK(plain)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond)
    ->ArgsProduct({{10, 40, 160}, {1, 2}});
BENCHMARK(clip)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond)
    ->ArgsProduct({{10, 40, 160}, {1, 2}, {0, 1}});

}  // namespace

BENCHMARK_MAIN();
