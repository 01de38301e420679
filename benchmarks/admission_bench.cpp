// Descriptors through the gate: what a core verifies, and what the epoch's cache answers.
#include <benchmark/benchmark.h>

#include "discreet/admission/admission_gate.h"
#include "discreet/admission/policy_testing.h"

namespace {

using namespace discreet;
using namespace discreet::admission;

constexpr std::size_t kContributions = 2000;

const std::vector<Contribution>& contributions() {
  static const std::vector<Contribution> all = [] {
    const SigningKey key = admission::testing::key_of(1);
    std::vector<Contribution> out;
    for (std::size_t i = 0; i < kContributions; ++i) {
      Descriptor d = admission::testing::clinical();
      d.content_anchor[0] = static_cast<std::uint8_t>(i);
      d.content_anchor[1] = static_cast<std::uint8_t>(i >> 8);
      const Bytes bytes = encode(d);
      out.push_back({bytes, attest(key, bytes)});
    }
    return out;
  }();
  return all;
}

Gate fresh_gate() {
  return Gate(
      admission::testing::policy(),
      {.time = admission::testing::now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
}

// The whole way of a descriptor that the gate has not seen; time per descriptor.
void admit(benchmark::State& state) {
  contributions();
  for (auto _ : state) {
    Gate gate = fresh_gate();
    benchmark::DoNotOptimize(gate.admit(contributions(), static_cast<int>(state.range(0))).data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kContributions));
}
BENCHMARK(admit)->Arg(1)->Arg(2)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

// The signature alone, through OpenSSL: what no gate can be faster than.
void signature(benchmark::State& state) {
  const SigningKey key = admission::testing::key_of(1);
  const PublicKey shared = key.public_key();
  const Bytes message(300);
  const Signature made = key.sign(message);
  for (auto _ : state) benchmark::DoNotOptimize(shared.verifies(message, made));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(signature)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);

// Is this contribution admitted? As the batch asks, by its hash.
void find(benchmark::State& state) {
  Gate gate = fresh_gate();
  std::vector<Digest> hashes;
  for (const Verdict& v : gate.admit(contributions())) hashes.push_back(v.hash);
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(gate.find(hashes[i]));
    i = i + 1 == hashes.size() ? 0 : i + 1;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(find)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
