// The gate in front of a model of 96 layers with 8 classes of contributions. Prints one JSON
// object.
//   release_bench
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "discreet/release/release_testing.h"

int main() {
  using namespace discreet;
  using namespace discreet::release;
  using namespace discreet::release::testing;
  Folder folder;
  auto ledger = ledger::Ledger::create(folder / "ledger.db", header(), bytes_of("p"), ledger_key());
  std::vector<ledger::Terms> epoch;
  Request wide = request("predict");
  wide.rights.classes.emplace();
  wide.rights.most_epsilon = 1'000'000'000;
  for (std::uint32_t c = 0; c < 8; ++c) {
    const std::string name = fmt::format("class-{}", c);
    ledger.admit(contributions(100 * c, 100 * c + 10, name));
    epoch.push_back(terms_of(name, profile(cbor::array({"layers", 10 * c, 95}))));
    wide.rights.classes->push_back(name);
  }
  ledger.reserve_epoch("run", 0, kToday, epoch);
  std::vector<Tensor> tensors;
  for (int i = 0; i < 96; ++i)
    tensors.push_back({.name = fmt::format("block{}.weight", i), .shape = {2}});
  RunFacts run{{"run"}, model(), ModelLayout(std::move(tensors)), 1, 1e-5};
  ReleaseTerms terms;
  terms.issued = kToday;
  const std::string envelope = sign(
      draft(run, terms, LedgerAt{folder / "ledger.db", ledger_key().public_key(), ledger.note()}),
      release_key());
  const auto seconds = [](int rounds, const auto& work) {
    std::vector<double> times;
    for (int batch = 0; batch < 21; ++batch) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < rounds; ++i) work();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      times.push_back(took.count() / rounds);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  Gate::Evidence e = evidence();
  e.clock = [] {  // as the system's, but of a day on which the manifest holds
    return kToday + static_cast<std::uint64_t>(
                        std::chrono::system_clock::now().time_since_epoch().count() % 2);
  };
  const Gate gate(envelope, e);
  bool ok = gate.decide(wide).allowed();
  Request narrow = wide;
  narrow.rights.classes->pop_back();
  ok = ok && gate.decide(narrow).reason == Reason::kClassNotPermitted;
  const double allow = seconds(10'000, [&] { ok = ok && gate.decide(wide).allowed(); });
  const double deny = seconds(10'000, [&] { ok = ok && !gate.decide(narrow).allowed(); });
  const double load = seconds(20, [&] { ok = ok && Gate(envelope, e).standing().allowed(); });
  fmt::print("{{\"ok\": {}, \"allow_seconds\": {}, \"deny_seconds\": {}, \"load_seconds\": {}}}\n",
             ok, allow, deny, load);
  return ok ? 0 : 1;
}
