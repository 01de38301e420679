#include "cli/budget/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/numbers.h"
#include "discreet/accounting/plan.h"
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
  const std::string chosen = fmt::format(
      "{}--sampling {}", options.epochs.empty() ? "" : "--epochs with ", options.sampling);
  for (const auto& [name, text] : optional_ones(options)) {
    const bool wants = std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    if (wants && text.empty()) refuse(name, fmt::format("{} needs {}", chosen, name));
    if (!wants && !text.empty())
      refuse(name, fmt::format("{} takes no {}; leave it out", chosen, name));
  }
}

// The sizes of the data set and its batches, and the steps of an epoch.
Workload one_epoch(const SamplingOptions& options) {
  return workload_from_sizes(parse_count("--dataset-size", options.dataset_size),
                             parse_count("--batch-size", options.batch_size), 1);
}

// The number of steps. per_epoch: 0 if unknown.
std::uint64_t length(const SamplingOptions& options, std::uint64_t per_epoch) {
  if (options.epochs.empty()) return parse_count("--steps", options.steps);
  const std::uint64_t epochs = parse_count("--epochs", options.epochs);
  if (per_epoch > 0 && epochs > (std::uint64_t{1} << 53) / per_epoch)
    refuse("--epochs", fmt::format("{} epochs of {} steps exceed 2^53 steps; give fewer epochs",
                                   epochs, per_epoch));
  return epochs * per_epoch;
}

ParsedSampling by_steps(const SamplingOptions& options, const Sampling& sampling,
                        std::uint64_t per_epoch) {
  return {sampling, length(options, per_epoch), 1, per_epoch};
}

ParsedSampling by_epochs(const SamplingOptions& options, const Sampling& sampling,
                         std::uint64_t batches) {
  const std::uint64_t steps = length(options, batches);
  if (steps % batches != 0)
    refuse("--steps",
           fmt::format("--steps is {}, which must be a multiple of the {} batches of an epoch: the "
                       "epoch is released whole or not at all",
                       steps, batches));
  return {sampling, steps, batches, batches};
}

std::uint64_t batches_per_epoch(const SamplingOptions& options) {
  if (options.batches_per_epoch.empty() && !options.batch_size.empty()) {
    require_exactly(options, {"--batch-size", "--dataset-size"});
    return one_epoch(options).sizes->batches;
  }
  require_exactly(options, {"--batches-per-epoch"});
  const std::uint64_t batches = parse_count("--batches-per-epoch", options.batches_per_epoch);
  if (batches == 0) refuse("--batches-per-epoch", "--batches-per-epoch is 0; give at least 1");
  return batches;
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
                 "Records in a step, with --dataset-size in place of a rate or number of batches");
  command.option("--dataset-size", "N", options.dataset_size, "Declared number of records, public");
  command.option("--batches-per-epoch", "N", options.batches_per_epoch,
                 "Batches in an epoch (balls_and_bins, shuffle)");
  command.option("--truncate", "N", options.truncate, "Largest batch (truncated_poisson)");
  command.option("--steps", "N", options.steps, "Number of steps");
  command
      .option(
          "--epochs", "N", options.epochs,
          "In place of --steps: passes over the data, of dataset size / batch size steps, rounded "
          "up; without sampling, of one step")
      .excludes({"--steps"});
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
  if (options.steps.empty() && options.epochs.empty())
    refuse("--steps", "give --steps, the number of steps, or --epochs, the passes over the data");
  const bool sizes =
      options.sampling_rate.empty() && !(options.batch_size.empty() && options.epochs.empty());
  const auto rate = [&] { return parse_number("--sampling-rate", options.sampling_rate); };

  if (options.sampling == "poisson") {
    if (sizes) {
      require_exactly(options, {"--batch-size", "--dataset-size"});
      const Workload epoch = one_epoch(options);
      return by_steps(options, Poisson{epoch.rate}, epoch.sizes->batches);
    }
    if (!options.epochs.empty())
      refuse("--epochs",
             "--epochs needs --dataset-size and --batch-size in place of --sampling-rate");
    require_exactly(options, {"--sampling-rate"});
    return by_steps(options, Poisson{rate()}, 0);
  }
  if (options.sampling == "none") {
    require_exactly(options, {});
    return by_steps(options, NoSampling{}, 1);
  }
  if (options.sampling == "fixed_size") {
    require_exactly(options, {"--batch-size", "--dataset-size"});
    const Workload epoch = one_epoch(options);
    return by_steps(options, FixedSize{epoch.sizes->batch, epoch.sizes->records},
                    epoch.sizes->batches);
  }
  if (options.sampling == "truncated_poisson") {
    const auto most = [&] { return parse_count("--truncate", options.truncate); };
    if (sizes) {
      require_exactly(options, {"--batch-size", "--truncate", "--dataset-size"});
      const Workload epoch = one_epoch(options);
      return by_steps(options, TruncatedPoisson{epoch.rate, most(), epoch.sizes->records},
                      epoch.sizes->batches);
    }
    if (!options.epochs.empty())
      refuse("--epochs", "--epochs needs --batch-size in place of --sampling-rate");
    require_exactly(options, {"--sampling-rate", "--truncate", "--dataset-size"});
    const std::uint64_t population = parse_count("--dataset-size", options.dataset_size);
    return by_steps(options, TruncatedPoisson{rate(), most(), population}, 0);
  }
  if (options.sampling == "balls_and_bins") {
    const std::uint64_t batches = batches_per_epoch(options);
    return by_epochs(options, BallsAndBins{batches}, batches);
  }
  if (options.sampling == "shuffle") {
    const std::uint64_t batches = batches_per_epoch(options);
    return by_epochs(options, ShuffledEpoch{batches}, batches);
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
