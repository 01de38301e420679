// Ghost and fused clipping of a dense model beside the plain batched gradient: the same products of
// matrices without clipping, by OpenBLAS, into binary32.
//   ghost_bench [Google Benchmark options]
//   ghost_bench memory ghost|fused|explicit BATCH     the peak memory in bytes, of one batch
#include <benchmark/benchmark.h>
#include <cblas.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/mechanism/clip/ghost/fused.h"
#include "discreet/mechanism/clip/ghost/ghost.h"

namespace {

using namespace discreet::mechanism;

constexpr std::size_t kLayers = 4, kWidth = 1024, kBatch = 256;

struct Model {
  ModelLayout layout{{}};
  std::vector<std::vector<float>> activations, gradients;
  BackwardPass<float> pass;

  explicit Model(std::size_t batch) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> draw;
    std::vector<Tensor> tensors;
    for (std::size_t l = 0; l < kLayers; ++l) {
      tensors.push_back(
          {.name = "layer" + std::to_string(l) + ".weight", .shape = {kWidth, kWidth}});
      for (auto* arrays : {&activations, &gradients}) {
        arrays->emplace_back(batch * kWidth);
        for (float& v : arrays->back()) v = draw(random);
      }
    }
    layout = ModelLayout(std::move(tensors));
    pass.records = batch;
    for (std::size_t l = 0; l < kLayers; ++l)
      pass.layers.push_back(DensePass<float>{activations[l], gradients[l], 1, l});
  }

  ClipPlan plan(Cut cut) const {
    ClipPlan out{partition(layout, cut), {}, {}};
    out.clip.assign(out.partition.parts(), 1.0);
    return out;
  }
};

ClipOptions options_of(const benchmark::State& state) {
  ClipOptions options;
  options.threads = static_cast<int>(state.range(0));
  options.binary32_records = static_cast<std::size_t>(state.range(1));
  return options;
}

void plain(benchmark::State& state) {
  const Model model(kBatch);
  std::vector<std::vector<float>> out(kLayers, std::vector<float>(kWidth * kWidth));
  openblas_set_num_threads(static_cast<int>(state.range(0)));
  for (auto _ : state)
    for (std::size_t l = 0; l < kLayers; ++l)
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, kWidth, kWidth, kBatch, 1,
                  model.gradients[l].data(), kWidth, model.activations[l].data(), kWidth, 0,
                  out[l].data(), kWidth);
}
BENCHMARK(plain)->Arg(1)->Arg(2)->UseRealTime();

void ghost(benchmark::State& state) {
  const Model model(kBatch);
  const ClipPlan plan = model.plan(Cut::kFlat);
  GradientSum sum(model.layout);
  for (auto _ : state) ghost_clip(model.layout, model.pass, plan, options_of(state), sum);
}
BENCHMARK(ghost)->ArgsProduct({{1, 2}, {64, 128, 256, 0}})->UseRealTime();

void fused(benchmark::State& state) {
  const Model model(kBatch);
  const ClipPlan plan = model.plan(Cut::kLayer);
  GradientSum sum(model.layout);
  for (auto _ : state) fused_clip(model.layout, model.pass, plan, options_of(state), sum);
}
BENCHMARK(fused)->ArgsProduct({{1, 2}, {64, 128, 256}})->UseRealTime();

int print_peak_memory(std::string_view how, std::size_t batch) {
  const Model model(batch);
  GradientSum sum(model.layout);
  if (how == "ghost") {
    ghost_clip(model.layout, model.pass, model.plan(Cut::kFlat), {}, sum);
  } else if (how == "fused") {
    fused_clip(model.layout, model.pass, model.plan(Cut::kLayer), {}, sum);
  } else {
    std::vector<float> explicit_gradients(batch * kLayers * kWidth * kWidth);
    for (std::size_t i = 0; i < explicit_gradients.size(); ++i) {
      const std::size_t record = i / (kLayers * kWidth * kWidth),
                        l = i / (kWidth * kWidth) % kLayers;
      explicit_gradients[i] = model.gradients[l][record * kWidth + i / kWidth % kWidth] *
                              model.activations[l][record * kWidth + i % kWidth];
    }
    benchmark::DoNotOptimize(explicit_gradients.data());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%ld\n", usage.ru_maxrss * 1024L);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "memory")
    return print_peak_memory(argv[2], std::strtoul(argv[3], nullptr, 10));
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
