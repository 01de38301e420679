#pragma once

#include <string>

#include "discreet/admission/descriptor.h"
#include "discreet/admission/policy.h"

namespace discreet::admission::testing {

inline SigningKey key_of(std::uint8_t number) {
  Bytes seed(32);
  seed[0] = number;
  return SigningKey::from_seed(seed);
}

// Two classes: `clinical`, which key 1 may attest, and `public-text`, which keys 1 and 2 may;
// `diary` is amplified. Key 9 is the authority.
inline std::string policy_text() {
  const auto hex = [](std::uint8_t n) { return to_hex(key_of(n).public_key().bytes()); };
  return "corpus: example\n"
         "accountant: rdp\n"
         "floors: {clip_norm: 0.01, noise_multiplier: 0.5}\n"
         "most_validity_days: 730\n"
         "epoch_seconds: 86400\n"
         "retention_epochs: 12\n"
         "noise: {stddev: 2, clipping: flat}\n"
         "classes:\n"
         "  clinical:\n"
         "    clip_norm: 0.5\n"
         "    noise_multiplier: 1\n"
         "    most_occurrences: 20\n"
         "    sensitive: true\n"
         "  public-text:\n"
         "    clip_norm: 2\n"
         "    noise_multiplier: 0.6\n"
         "    most_occurrences: 100\n"
         "    profile: {whole: true}\n"
         "  diary:\n"
         "    clip_norm: 1\n"
         "    noise_multiplier: 1\n"
         "    most_occurrences: 1000\n"
         "    profile: {whole: true}\n"
         "    amplified: {rate: 0.01, steps: 1000, delta: 0.00001}\n"
         "keys:\n"
         "  - {name: hospital, public_key: " +
         hex(1) +
         ", classes: [clinical, public-text, diary]}\n"
         "  - {name: library, public_key: " +
         hex(2) +
         ", classes: [public-text]}\n"
         "authority: " +
         hex(9) + "\n";
}
inline Policy policy() { return read_policy(policy_text(), "policy.yaml"); }

inline Descriptor clinical(std::uint8_t number = 0) {
  Descriptor d;
  d.contributor = "patient-1";
  d.data_class = "clinical";
  d.clip_norm = parse_scaled("0.5", "C");
  d.noise_multiplier = parse_scaled("1", "z");
  d.occurrences = 20;
  d.not_before = parse_instant("2026-01-01", "t");
  d.not_after = parse_instant("2027-01-01", "t");
  d.corpus = "example";
  d.content_anchor[0] = number;
  d.nonce[0] = number;
  return d;
}
inline Instant now() { return parse_instant("2026-06-01", "t"); }

}  // namespace discreet::admission::testing
