#include <fmt/core.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/commands.h"
#include "cli/print.h"
#include "discreet/discreet.h"
#include "discreet/numerics/strict_arithmetic.h"

namespace discreet::cli {
namespace {

// A published value that this build must reproduce on this machine.
struct KnownAnswer {
  const char* capability;
  const char* source;
  std::function<bool()> holds;
};

bool contains(const accounting::Interval& interval, double value) {
  return interval.lower <= value && value <= interval.upper;
}

bool epsilon_is(const accounting::Composition& steps, double delta, double published,
                double rounding) {
  const accounting::Interval found = accounting::certified_epsilon(steps, delta).value;
  return contains({found.lower - rounding, found.upper + rounding}, published);
}

std::vector<KnownAnswer> known_answers() {
  return {
      {"SHA-256", "FIPS 180-4, 'abc'",
       [] {
         return to_hex(sha256(bytes_of("abc"))) ==
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
       }},
      {"deterministic CBOR", "RFC 8949 appendix A, {1: 2, 3: 4}",
       [] {
         return to_hex(cbor::encode(cbor::map({{3, 4}, {1, 2}}))) == "a201020304";
       }},
      {"round to nearest, no fast-math", "IEEE 754",
       [] {
         numerics::require_round_to_nearest();
         return numerics::exp(1.0) == 0x1.5bf0a8b145769p+1;
       }},
      {"Philox4x32-10", "Random123, zero counter and key",
       [] {
         return random::philox4x32_10({}, {}) ==
                random::PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
       }},
      {"AES-128 in counter mode", "NIST SP 800-38A F.5.1",
       [] {
         Bytes key = from_hex("2b7e151628aed2a6abf7158809cf4f3c");
         key.resize(random::Key::kSize);
         const random::Generator aes(random::Algorithm::kAes128Ctr, random::Key::from_bytes(key));
         std::uint64_t words[2];
         random::BlockSource(aes).read(0xf0f1f2f3f4f5f6f7, 0xf8f9fafbfcfdfeff, words);
         return words[0] == 0xb07c609873df8cec && words[1] == 0xe4a19eea7516d2f2;
       }},
      {"epsilon of a Gaussian", "closed form, δ = 0.1269367375 at ε = 1",
       [] {
         return epsilon_is({{{1, 1, 1}}, {}}, 0.1269367375, 1.0, 1e-9);
       }},
      {"epsilon of subsampled steps", "Opacus test, q=.05 σ=1.5 T=1000 δ=1e-6",
       [] {
         return epsilon_is({{{0.05, 1.5, 1000}}, {}}, 1e-6, 6.19969168, 1e-8);
       }},
      {"epsilon where rounding misleads others", "q=.3 σ=10 T=2000 δ=1e-9: 8.6228151",
       [] {
         return epsilon_is({{{0.3, 10, 2000}}, {}}, 1e-9, 8.6228151, 5e-8);
       }},
  };
}

ExitStatus selfcheck(bool json) {
  int failed = 0;
  auto rows = nlohmann::json::array();
  if (!json) print("discreet {}\n", version());
  for (const KnownAnswer& answer : known_answers()) {
    const bool ok = answer.holds();
    failed += !ok;
    if (json) {
      rows.push_back({{"capability", answer.capability}, {"source", answer.source}, {"ok", ok}});
    } else {
      print("  {:<6} {:<40} {}\n", ok ? "ok" : "FAILED", answer.capability, answer.source);
    }
  }
  if (json) {
    print("{}\n",
          nlohmann::json{{"version", version()}, {"checks", rows}, {"ok", failed == 0}}.dump());
  } else if (failed == 0) {
    print("Everything this build can do was checked on this machine.\n");
  } else {
    print("{} of {} checks failed: do not use this build.\n", failed, known_answers().size());
  }
  return failed == 0 ? kDone : kCheckSaysNo;
}

}  // namespace

void add_selfcheck(Command& command) {
  auto json = std::make_shared<bool>(false);
  command.json(*json);
  command.action([json] { return selfcheck(*json); });
}

}  // namespace discreet::cli
