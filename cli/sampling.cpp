#include "cli/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/numbers.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using namespace accounting;  // the samplers

[[noreturn]] void refuse(const std::string& option, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, option, sentence);
}

struct NamedOption {
  const char* name;
  const std::string& text;
};

std::vector<NamedOption> optional_ones(const SamplingOptions& o) {
  return {{"--sampling-rate", o.sampling_rate},
          {"--batches-per-epoch", o.batches_per_epoch},
          {"--batch-size", o.batch_size},
          {"--dataset-size", o.dataset_size},
          {"--truncate", o.truncate}};
}

// Exactly the options in `wanted` are given.
void require_exactly(const SamplingOptions& options, std::vector<std::string_view> wanted) {
  for (const auto& [name, text] : optional_ones(options)) {
    const bool wants = std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    if (wants && text.empty()) {
      refuse(name, fmt::format("--sampling {} needs {}", options.sampling, name));
    }
    if (!wants && !text.empty()) {
      refuse(name, fmt::format("--sampling {} takes no {}; leave it out", options.sampling, name));
    }
  }
}

std::uint64_t whole_epochs(std::uint64_t steps, std::uint64_t batches) {
  if (batches == 0) refuse("--batches-per-epoch", "--batches-per-epoch is 0; give at least 1");
  if (steps % batches != 0) {
    refuse("--steps",
           fmt::format("--steps is {}, which must be a multiple of --batches-per-epoch {}: "
                       "the epoch is released whole or not at all",
                       steps, batches));
  }
  return steps / batches;
}

}  // namespace

void add_sampling_options(Command& command, SamplingOptions& options) {
  command.option("--sampling", "NAME", options.sampling, "Who takes part in a step")
      .choices({"poisson", "none", "balls_and_bins", "fixed_size", "shuffle", "truncated_poisson"});
  command
      .option("--adjacency", "NAME", options.adjacency,
              "What neighbouring datasets differ in; add_remove if not given, zero_out for shuffle")
      .choices({"add_remove", "zero_out", "replace_one"});
  command.option("--sampling-rate", "RATE", options.sampling_rate,
                 "Probability that a record takes part in a step, in (0, 1]");
  command.option("--batch-size", "N", options.batch_size,
                 "Records in a step (fixed_size), or expected ones (poisson)");
  command.option("--dataset-size", "N", options.dataset_size, "Declared number of records");
  command.option("--batches-per-epoch", "N", options.batches_per_epoch,
                 "Batches in an epoch (balls_and_bins, shuffle)");
  command.option("--truncate", "N", options.truncate, "Largest batch (truncated_poisson)");
  command.option("--steps", "N", options.steps, "Number of steps");
}

Adjacency parse_adjacency(const SamplingOptions& options) {
  if (options.adjacency.empty()) {
    return options.sampling == "shuffle" ? Adjacency::kZeroOut : Adjacency::kAddRemove;
  }
  for (const Adjacency each :
       {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne}) {
    if (to_string(each) == options.adjacency) return each;
  }
  refuse("--adjacency", fmt::format("--adjacency is '{}'; give add_remove, zero_out or replace_one",
                                    options.adjacency));
}

ParsedSampling parse_sampling(const SamplingOptions& options) {
  if (options.steps.empty()) refuse("--steps", "give --steps, the number of steps");
  const std::uint64_t steps = parse_count("--steps", options.steps);
  const auto rate = [&] { return parse_number("--sampling-rate", options.sampling_rate); };
  const auto batch = [&] { return parse_count("--batch-size", options.batch_size); };
  const auto population = [&] { return parse_count("--dataset-size", options.dataset_size); };
  const auto batches = [&] {
    return parse_count("--batches-per-epoch", options.batches_per_epoch);
  };

  if (options.sampling == "poisson") {
    if (options.sampling_rate.empty() && !options.batch_size.empty()) {
      require_exactly(options, {"--batch-size", "--dataset-size"});
      return {Poisson{static_cast<double>(batch()) / static_cast<double>(population())}, steps,
              steps};
    }
    require_exactly(options, {"--sampling-rate"});
    return {Poisson{rate()}, steps, steps};
  }
  if (options.sampling == "none") {
    require_exactly(options, {});
    return {NoSampling{}, steps, steps};
  }
  if (options.sampling == "fixed_size") {
    require_exactly(options, {"--batch-size", "--dataset-size"});
    return {FixedSize{batch(), population()}, steps, steps};
  }
  if (options.sampling == "truncated_poisson") {
    require_exactly(options, {"--sampling-rate", "--truncate", "--dataset-size"});
    const TruncatedPoisson sampling{rate(), parse_count("--truncate", options.truncate),
                                    population()};
    return {sampling, steps, steps};
  }
  if (options.sampling == "balls_and_bins") {
    require_exactly(options, {"--batches-per-epoch"});
    return {BallsAndBins{batches()}, steps, whole_epochs(steps, batches())};
  }
  if (options.sampling == "shuffle") {
    require_exactly(options, {"--batches-per-epoch"});
    return {ShuffledEpoch{batches()}, steps, whole_epochs(steps, batches())};
  }
  refuse("--sampling", fmt::format("--sampling is '{}'; give poisson, none, balls_and_bins, "
                                   "fixed_size, shuffle or truncated_poisson",
                                   options.sampling));
}

std::string describe_sampling(const Sampling& sampling) {
  struct Describe {
    std::string operator()(const NoSampling&) const { return "every record in every step"; }
    std::string operator()(const Poisson& s) const {
      return fmt::format("Poisson sampling at rate {}", s.rate);
    }
    std::string operator()(const TruncatedPoisson& s) const {
      return fmt::format("Poisson sampling at rate {} of {} records, at most {} in a batch", s.rate,
                         s.population, s.batch);
    }
    std::string operator()(const FixedSize& s) const {
      return fmt::format("batches of exactly {} of {} records", s.batch, s.population);
    }
    std::string operator()(const BallsAndBins& s) const {
      return fmt::format("each record in one of {} batches an epoch, by lot", s.batches);
    }
    std::string operator()(const ShuffledEpoch& s) const {
      return fmt::format("shuffled epochs of {} batches", s.batches);
    }
  };
  return std::visit(Describe{}, sampling);
}

std::string describe_proviso(const Sampling& sampling) {
  if (std::holds_alternative<Poisson>(sampling)) {
    return "each record enters each step by a coin of its own";
  }
  if (std::holds_alternative<TruncatedPoisson>(sampling)) {
    return "each record enters each step by a coin of its own, and the number of records is public";
  }
  if (std::holds_alternative<FixedSize>(sampling)) return "each batch is drawn afresh";
  if (std::holds_alternative<BallsAndBins>(sampling)) {
    return "lots are drawn afresh each epoch, and epochs are released whole";
  }
  if (std::holds_alternative<ShuffledEpoch>(sampling)) {
    return "the order is drawn afresh each epoch; shuffling is given no credit";
  }
  return "every record is in every step";
}

}  // namespace discreet::cli
