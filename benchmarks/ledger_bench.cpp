// Appending and verifying a ledger of 60,000 contributions. Prints one JSON object; the set-up
// signs every attestation and takes a while.
//   ledger_bench [EPOCHS]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/verify.h"

int main(int argc, char** argv) {
  using namespace discreet::ledger;
  using namespace discreet::ledger::testing;
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 20;
  constexpr std::uint32_t kContributions = 60'000;
  const auto seconds = [](const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  Folder folder;
  const auto path = folder / "ledger.db";
  std::vector<double> appends;
  {
    Ledger ledger = Ledger::create(path, header(), discreet::bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, kContributions));
    Terms t = terms();
    t.planned_steps = t.steps * static_cast<std::uint64_t>(epochs);
    for (int epoch = 0; epoch < epochs; ++epoch)
      appends.push_back(seconds(
          [&] { ledger.reserve_epoch("run", static_cast<std::uint64_t>(epoch), kToday, {t}); }));
  }
  std::sort(appends.begin(), appends.end());
  VerifyOptions options;
  options.attestations = false;
  // Processor time, as nothing is waited for.
  const auto processor_seconds = [](const auto& work) {
    const std::clock_t begin = std::clock();
    work();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  std::vector<double> verifies;
  Verification found;
  for (int i = 0; i < 3; ++i)
    verifies.push_back(processor_seconds([&] { found = verify(path, options); }));
  std::sort(verifies.begin(), verifies.end());
  fmt::print(
      "{{\"ok\": {}, \"entries\": {}, \"append_seconds\": {}, \"append_slowest_seconds\": {}, "
      "\"verify_seconds\": {}, \"bytes\": {}}}\n",
      found.ok, found.size, appends[appends.size() / 2], appends.back(), verifies[1],
      std::filesystem::file_size(path));
  return found.ok ? 0 : 1;
}
