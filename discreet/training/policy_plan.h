#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "discreet/admission/policy.h"
#include "discreet/mechanism/step/forecast.h"
#include "discreet/training/corpus_terms.h"

namespace discreet::training {

// What a corpus policy gives the contributions of a run, before there are any: for each class, a
// contribution with the class's own bounds, which are the most permissive that its descriptors may
// declare. Routes, multipliers and accounts are those of training (corpus.h), so a run with such
// contributions has these numbers. Public.

struct ClassPlan {
  std::string name;
  CorpusClass terms;            // with the route: blocks, stddev and clip bounds
  accounting::Mechanism use;    // of one use
  double multiplier = 0;        // of one use: noise / clip bound, rounding included
  std::uint64_t most_uses = 0;  // of a contribution over all runs
  ContributionAccount account;  // after all of them
  std::vector<double> epsilon;  // after 1/16, 2/16, ... of them, for a plot
  // The factor on every stddev of the policy at which the clip bound is no longer reduced below the
  // class's clip norm. Rounded up.
  double factor_for_clip_norm = 0;
  // The smallest factor, within 1e-4, at which the account keeps the target; 0 if the class's noise
  // multiplier keeps it whatever the stddev is. Empty without a target, or if no factor up to 10^6
  // keeps it.
  std::optional<double> factor_for_target;
};

struct PolicyPlan {
  std::string corpus, accountant;
  std::uint64_t steps = 0;         // planned
  accounting::Sampling sampling;   // of the run
  std::string noise;               // family
  double delta = 0;                // of the run
  mechanism::Forecast forecast;    // of the whole run, zero-out, for the class that it affects most
  std::vector<ClassPlan> classes;  // by name
};

// config: resolved, of the run; its section corpus is not used. The data are opened for the shape
// of the model only. target_epsilon, delta: empty: none, and that of the configuration; an
// amplified class has its own delta. Throws as plan_run() for a run without contributions, as
// admission::resolve() if a class permits nothing in the model, and kInvalidDpConfig for a target
// with noise that is neither gaussian nor rounded_gaussian.
PolicyPlan plan_policy(const Config& config, const admission::Policy& policy,
                       std::optional<double> target_epsilon, std::optional<double> delta);

}  // namespace discreet::training
