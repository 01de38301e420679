// Deleting one of 50,000 records of dimension 54, and what retraining takes instead.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <vector>

#include "discreet/unlearning/erm_engine.h"
#include "discreet/unlearning/exact_engine.h"

namespace {

using namespace discreet;
using namespace discreet::unlearning;

constexpr std::size_t kRecords = 50'000, kDimension = 54;

struct Data {
  std::vector<double> x = std::vector<double>(kRecords * kDimension);
  std::vector<double> y = std::vector<double>(kRecords);
  Data() {
    NoiseSource noise = NoiseSource::insecure(1);
    noise.add(1 / std::sqrt(double(kDimension)), x);
    noise.add(0.2, y);
    for (std::size_t i = 0; i < kRecords; ++i) {
      const auto r = row(i);
      y[i] = y[i] + r[0] - r[1] + 0.5 * r[2] > 0 ? 1 : -1;
    }
  }
  std::span<const double> row(std::size_t i) const {
    return std::span(x).subspan(i * kDimension, kDimension);
  }
};

const Data& data() {
  static const Data the_data;
  return the_data;
}

template <class Engine>
void fill(Engine& engine) {
  for (RecordId id = 0; id < kRecords; ++id) engine.insert(id, data().row(id), data().y[id]);
}

ExactEngine exact_engine() {
  ExactOptions o;
  o.dimension = kDimension;
  o.lambda = 1e-3;
  o.N = kRecords;
  o.n_max = 2 * kRecords;
  return ExactEngine(o);
}

std::unique_ptr<ErmEngine> erm_engine() {
  ErmOptions o;
  o.dimension = kDimension;
  o.N = kRecords;
  o.n_max = 2 * kRecords;
  auto engine = std::make_unique<ErmEngine>(o, NoiseSource::insecure(1));
  fill(*engine);
  engine->refine();
  return engine;
}

// The update alone, then with the model that comes out of it.
void exact_delete(benchmark::State& state) {
  ExactEngine engine = exact_engine();
  fill(engine);
  RecordId next = 0;
  for (auto _ : state) {
    const RecordId id = next++ % kRecords;
    engine.erase({&id, 1});
    if (state.range(0)) benchmark::DoNotOptimize(engine.publish());
    state.PauseTiming();
    engine.insert(id, data().row(id), data().y[id]);
    state.ResumeTiming();
  }
}

void exact_retrain(benchmark::State& state) {
  for (auto _ : state) {
    ExactEngine engine = exact_engine();
    fill(engine);
    benchmark::DoNotOptimize(engine.publish());
  }
}

// state.range(0) deletes as one batch, certified after it. What is deleted stays deleted.
void erm_delete(benchmark::State& state) {
  static const std::unique_ptr<ErmEngine> engine = erm_engine();
  static RecordId next = 0;
  for (auto _ : state) {
    std::vector<RecordId> ids(static_cast<std::size_t>(state.range(0)));
    for (RecordId& id : ids) id = next++;
    engine->erase(ids);
    engine->refine();
  }
}

void erm_retrain(benchmark::State& state) {
  static const std::unique_ptr<ErmEngine> engine = erm_engine();
  for (auto _ : state) {
    engine->forget_parameters();
    engine->refine();
  }
}

void erm_pass(benchmark::State& state) {
  static const std::unique_ptr<ErmEngine> engine = erm_engine();
  for (auto _ : state) benchmark::DoNotOptimize(engine->gradient_bound());
}

BENCHMARK(erm_pass)->Iterations(5);
BENCHMARK(exact_delete)->Arg(0)->Arg(1)->Iterations(2000);
BENCHMARK(exact_retrain)->Iterations(1);
BENCHMARK(erm_delete)->Arg(1)->Iterations(20);
BENCHMARK(erm_delete)->Arg(1000)->Iterations(2);
BENCHMARK(erm_retrain)->Iterations(2);

}  // namespace

BENCHMARK_MAIN();
