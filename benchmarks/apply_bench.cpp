// One optimizer step of 10 million parameters by Apply_v3, and what accounting, trace and noise
// take of it.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "discreet/config/config_resolve.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/random/gaussian.h"
#include "discreet/run/trace.h"

namespace {

using namespace discreet;
using namespace discreet::mechanism;

constexpr std::size_t kLayers = 40, kElements = 250'000, kParameters = kLayers * kElements;
constexpr std::size_t kMostRecords = 16;  // of a microbatch

ModelLayout model() {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < kLayers; ++i)
    tensors.push_back({.name = "layer" + std::to_string(i) + ".weight", .shape = {500, 500}});
  return ModelLayout(std::move(tensors));
}

// 60,000 records, batches of 256 by Poisson sampling, sigma 1.1.
Mechanism mechanism_of(int threads, std::size_t microbatches = 1) {
  Config config;
  config.privacy.declared_size = 60'000;
  config.privacy.effective_batch_size = 256;
  config.privacy.noise_multiplier = 1.1;
  config.privacy.target_epsilon = 8;
  config.privacy.target_steps = 20'000;
  config.privacy.gradient_accumulation_steps = microbatches;
  config.privacy = resolve(config.privacy).config;
  return Mechanism(config, model(), mechanism_streams(config.privacy, random::Key::from_seed(1)),
                   kernel_replay_token(config, Digest{}), threads);
}

PerSampleGradients<float> gradients_of(std::size_t records) {
  static const std::vector<float> values = [] {
    std::vector<float> x(kParameters * kMostRecords);
    std::uint32_t state = 1;
    for (float& v : x) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    }
    return x;
  }();
  PerSampleGradients<float> gradients{records, {}};
  for (std::size_t i = 0; i < kLayers; ++i)
    gradients.tensors.push_back(
        std::span(values).subspan(i * kElements * kMostRecords, kElements * records));
  return gradients;
}

void step(benchmark::State& state) {
  const auto records = static_cast<std::size_t>(state.range(0));
  const std::vector<Microbatch> all(std::max<std::size_t>(1, records / kMostRecords),
                                    gradients_of(std::min(records, kMostRecords)));
  Mechanism mechanism = mechanism_of(static_cast<int>(state.range(1)), all.size());
  for (auto _ : state) benchmark::DoNotOptimize(mechanism.apply(all).gradients.values().data());
}
// records, threads; no records: noise, accounting and release alone
BENCHMARK(step)
    ->ArgsProduct({{0, 16, 256}, {1, 2}})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

void noise(benchmark::State& state) {
  const ModelLayout layout = model();
  const Partition parts = partition(layout, Cut::kFlat);
  const auto generator = random::Generator::secure(random::Key::from_seed(1).derive("noise"));
  const std::vector<double> stddev = {1.1 / 256};
  GradientSum sum(layout);
  NoiseRequest request;
  request.stddev = stddev;
  request.threads = static_cast<int>(state.range(0));
  NoiseState at;
  for (auto _ : state) at = generate_noise(layout, parts, request, generator, at, sum);
}
BENCHMARK(noise)->Arg(1)->Arg(2)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

void gaussian(benchmark::State& state) {
  const auto generator = random::Generator::secure(random::Key::from_seed(1).derive("noise"));
  std::vector<double> x(kParameters);
  std::uint64_t t = 0;
  for (auto _ : state)
    random::add_gaussian(generator, random::Position::at(t++, 0), 1.1 / 256, x,
                         static_cast<int>(state.range(0)));
}
BENCHMARK(gaussian)->Arg(1)->Arg(2)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

// What release() does for step t and the 20 after it: a saved state to return to, one more event,
// the new epsilon.
void accounting_at(benchmark::State& state) {
  Mechanism mechanism = mechanism_of(1);
  const Microbatch none = gradients_of(0);
  mechanism.apply(std::span(&none, 1));
  const auto accountant = mechanism.accountant().clone();
  const accounting::Event event = accountant->composed().front().event;
  if (state.range(0) > 1)
    accountant->compose(event, static_cast<std::uint64_t>(state.range(0) - 1));
  accountant->epsilon(1e-5);
  for (auto _ : state) {
    benchmark::DoNotOptimize(accountant->save().data());
    accountant->compose(event);
    benchmark::DoNotOptimize(accountant->epsilon(1e-5));
  }
}
BENCHMARK(accounting_at)
    ->Arg(1)
    ->Arg(100)
    ->Arg(1'000)
    ->Arg(10'000)
    ->Iterations(20)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

// The replay token, the line of the trace and its place in the chain; the state's fingerprint.
void records(benchmark::State& state) {
  Mechanism mechanism = mechanism_of(1);
  const Microbatch none = gradients_of(0);
  const StepResult result = mechanism.apply(std::span(&none, 1));
  const auto path = std::filesystem::temp_directory_path() / "discreet_apply_bench.jsonl";
  std::filesystem::remove(path);
  {
    auto trace = run::TraceWriter::create(path, mechanism.trace_header());
    for (auto _ : state) {
      benchmark::DoNotOptimize(mechanism.replay());
      trace.append("iter", trace_iter(result));
      benchmark::DoNotOptimize(mechanism.fingerprint());
    }
  }
  std::filesystem::remove(path);
}
BENCHMARK(records)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
