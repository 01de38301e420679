#include <fmt/core.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.h"
#include "discreet/discreet.h"

namespace discreet::cli {
namespace {

// A published value that this build must reproduce on this machine.
struct KnownAnswer {
  const char* capability;
  const char* source;
  std::function<bool()> holds;
};

std::vector<KnownAnswer> known_answers() {
  return {
      {"SHA-256", "FIPS 180-4, 'abc'",
       [] {
         return to_hex(sha256(bytes_of("abc"))) ==
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
       }},
  };
}

int selfcheck(bool json) {
  int failed = 0;
  auto rows = nlohmann::json::array();
  if (!json) fmt::print("discreet {}\n", version());
  for (const KnownAnswer& answer : known_answers()) {
    const bool ok = answer.holds();
    failed += !ok;
    if (json) {
      rows.push_back({{"capability", answer.capability}, {"source", answer.source}, {"ok", ok}});
    } else {
      fmt::print("  {:<6} {:<28} {}\n", ok ? "ok" : "FAILED", answer.capability, answer.source);
    }
  }
  if (json) {
    fmt::print(
        "{}\n",
        nlohmann::json{{"version", version()}, {"checks", rows}, {"ok", failed == 0}}.dump());
  } else if (failed == 0) {
    fmt::print("Everything this build can do was checked on this machine.\n");
  } else {
    fmt::print("{} of {} checks failed: do not use this build.\n", failed, known_answers().size());
  }
  return failed == 0 ? kDone : kCheckSaysNo;
}

}  // namespace

void add_selfcheck(CLI::App& command, int& status) {
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print one JSON object");
  command.callback([json, &status] { status = selfcheck(*json); });
}

}  // namespace discreet::cli
