#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/unlearning/service/service.h"

namespace discreet::unlearning {

struct VerificationOptions {
  std::vector<Row> forgotten;         // what was deleted, if whoever asks still has it
  std::vector<Row> test;              // records the model never saw
  std::uint64_t attack_runs = 2000;   // of each kind, >= 100
  double confidence = 0.95;           // of the attack's lower bound, in (0, 1)
  std::uint64_t most_records = 5000;  // of the live ones in the simulated deletes
  std::uint64_t seed = 1;             // of the simulated noise
};

// Accuracy where every label is -1 or 1, else the mean squared error.
struct Scores {
  std::string measure;  // "accuracy", "mean squared error"
  double served = 0;    // of the model that deleted
  double retrained = 0;
};

struct Verification {
  // A record was inserted into a copy and deleted again; how far the copy, before noise, is from
  // one that never had it, and what is certified. Ratio <= 1.
  double distance = 0;
  std::optional<double> bound;  // nothing is certified under the specification's accounting
  std::optional<bool>
      same_state;           // exact: statistics equal those of the live records, in every bit
  double disagreement = 0;  // share of retained and test records the two models put on two sides
  std::optional<Scores> retained, forgotten, test;
  // What the attack proves about epsilon at delta, from below; the certificate; and what the same
  // attack proves when noise is skipped and the record kept: it must exceed the certificate.
  double epsilon_lower_bound = 0;
  std::optional<double> epsilon_certified;
  double control_lower_bound = 0;
  bool holds = false;  // every comparison above is as it must be
  std::vector<std::string> notes;
};

// Checks a service from outside, on copies: nothing is spent, changed or released; all numbers are
// confidential. "Retrained" is the configured learner over the live records from its beginning.
// Proof: attack.md
// What it shows: the certificate is not violated by this attack. A low bound proves nothing.
Verification verify(const Service& service, const VerificationOptions& options = {});

}  // namespace discreet::unlearning
