// Deleting one of 50,000 records of dimension 54, and what retraining takes instead.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "discreet/unlearning/engines/erm_engine.h"
#include "discreet/unlearning/engines/exact_engine.h"
#include "discreet/unlearning/service/service.h"

namespace {

using namespace discreet;
using namespace discreet::unlearning;

constexpr std::size_t kRecords = 50'000, kDimension = 54;

struct Data {
  std::vector<double> x = std::vector<double>(kRecords * kDimension);
  std::vector<double> y = std::vector<double>(kRecords);
  Data() {
    // Records from elsewhere: 50,000 rows of 54 features and a label, as doubles.
    if (const char* path = std::getenv("DISCREET_RECORDS")) {
      std::ifstream in(path, std::ios::binary);
      std::vector<double> row(kDimension + 1);
      for (std::size_t i = 0; i < kRecords; ++i) {
        if (!in.read(reinterpret_cast<char*>(row.data()),
                     static_cast<std::streamsize>(row.size() * sizeof(double)))) {
          throw std::runtime_error("the file of DISCREET_RECORDS is too short");
        }
        std::copy_n(row.begin(), kDimension, &x[i * kDimension]);
        y[i] = row.back();
      }
      return;
    }
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

// Ten inserts before each delete, as in the specification's workload: not timed, but what they
// leave to do is. state.range(0): their labels, times that of a record like them; -1 contradicts
// all that was learned.
void erm_delete_after_inserts(benchmark::State& state) {
  struct Stream {
    std::unique_ptr<ErmEngine> engine = erm_engine();
    RecordId next = 0, fresh = kRecords;
  };
  static Stream alike, contrary;
  Stream& s = state.range(0) > 0 ? alike : contrary;
  for (auto _ : state) {
    state.PauseTiming();
    for (int i = 0; i < 10; ++i, ++s.fresh) {
      const std::size_t like = s.fresh % kRecords;
      s.engine->insert(s.fresh, data().row(like),
                       data().y[like] * static_cast<double>(state.range(0)));
    }
    state.ResumeTiming();
    const RecordId id = s.next++;
    s.engine->erase({&id, 1});
    s.engine->refine();
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

// The service: one delete with its receipt, durable. In memory (/dev/shm), so that what remains is
// the work beside the three commits.
void service_delete(benchmark::State& state) {
  const std::filesystem::path base = state.range(0) == 0 ? std::filesystem::path("/dev/shm")
                                                         : std::filesystem::temp_directory_path();
  std::string name = (base / "discreet.XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(name.data());
  ExactOptions o;
  o.dimension = kDimension;
  o.lambda = 1e-3;
  o.N = kRecords;
  o.n_max = 2 * kRecords;
  Service::create(folder / "model.db", "bench", o);
  {
    ledger::Header header;
    header.origin = "bench";
    header.accountant = "rdp";
    header.delta = 10'000'000'000'000;
    auto ledger = ledger::Ledger::create(folder / "ledger.db", header, bytes_of("bench"),
                                         admission::SigningKey::generate());
    Service service(folder / "model.db");
    std::vector<Row> rows;
    for (std::size_t i = 0; i < kRecords; ++i) {
      rows.push_back({std::to_string(i),
                      std::vector<double>(data().row(i).begin(), data().row(i).end()),
                      data().y[i]});
    }
    service.insert("all", rows);
    service.publish();
    std::size_t next = 0;
    for (auto _ : state) {
      const std::vector<std::string> who = {std::to_string(next++)};
      service.erase("delete-" + who[0], who, ledger, 1'800'000'000);
    }
  }
  std::filesystem::remove_all(folder);
}

BENCHMARK(service_delete)->Arg(0)->Iterations(100)->UseRealTime();
BENCHMARK(erm_pass)->Iterations(5);
BENCHMARK(exact_delete)->Arg(0)->Arg(1)->Iterations(2000);
BENCHMARK(exact_retrain)->Iterations(1);
BENCHMARK(erm_delete)->Arg(1)->Iterations(20);
BENCHMARK(erm_delete)->Arg(1000)->Iterations(2);
BENCHMARK(erm_delete_after_inserts)->Arg(1)->Arg(-1)->Iterations(40);
BENCHMARK(erm_retrain)->Iterations(2);

}  // namespace

BENCHMARK_MAIN();
