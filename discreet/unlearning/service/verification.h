#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/unlearning/service/service.h"

namespace discreet::unlearning {

struct VerificationOptions {
  std::vector<Row> forgotten;         // the deleted records, if the caller still has them
  std::vector<Row> test;              // records that the model never saw
  std::uint64_t attack_runs = 2000;   // of each kind, >= 100
  double confidence = 0.95;           // of the attack's lower bound, in (0, 1)
  std::uint64_t most_records = 5000;  // number of live records used in the simulated deletes
  std::uint64_t seed = 1;             // of the simulated noise
};

// Accuracy if every label is -1 or 1, otherwise the mean squared error.
struct Scores {
  std::string measure;  // "accuracy", "mean squared error"
  double served = 0;    // of the model after its deletes
  double retrained = 0;
};

struct Verification {
  // A record was inserted into a copy and deleted again: the distance of the copy, before noise,
  // from one without the record, and the certified bound. Ratio <= 1.
  double distance = 0;
  std::optional<double> bound;  // empty under the specification's accounting
  // exact: statistics equal those of the live records, in every bit
  std::optional<bool> same_state;
  double disagreement = 0;  // share of retained and test records that are classified differently
  std::optional<Scores> retained, forgotten, test;
  // The lower bound of epsilon at delta that the attack proves; the certificate; and what the same
  // attack proves if noise is skipped and the record kept, which must exceed the certificate.
  double epsilon_lower_bound = 0;
  std::optional<double> epsilon_certified;
  double control_lower_bound = 0;
  bool holds = false;  // every comparison above has the required result
  std::vector<std::string> notes;
};

// Checks a service from outside, on copies: nothing is spent, changed or released; all numbers are
// confidential. "Retrained" is the configured learner, trained on the live records from its start.
// Proof: attack.md
// It shows that this attack does not violate the certificate. A low bound proves nothing.
Verification verify(const Service& service, const VerificationOptions& options = {});

}  // namespace discreet::unlearning
