#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/schedule.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using accounting::Adjacency;
using accounting::Certified;
using accounting::Event;
using accounting::Gaussian;
using accounting::Interval;
using accounting::NoSampling;
using accounting::PldAccountant;
using accounting::Poisson;
using accounting::Sampling;

struct Options {
  std::string sampling_rate, noise_multiplier, steps, delta, epsilon;
  std::string schedule;
  std::string sampling = "poisson";
  std::string adjacency = "add_remove";
  bool verify = false;
  bool json = false;
};

[[noreturn]] void refuse(const char* option, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, option, sentence);
}

Adjacency parse_adjacency(const std::string& text) {
  for (const Adjacency each :
       {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne}) {
    if (to_string(each) == text) return each;
  }
  refuse("--adjacency",
         fmt::format("--adjacency is '{}'; give add_remove, zero_out or replace_one", text));
}

Sampling parse_sampling(const Options& options) {
  if (options.sampling == "none") {
    if (!options.sampling_rate.empty() &&
        parse_number("--sampling-rate", options.sampling_rate) != 1) {
      refuse("--sampling-rate",
             "with --sampling none every record is in every step; leave out "
             "--sampling-rate or choose --sampling poisson");
    }
    return NoSampling{};
  }
  if (options.sampling == "poisson") {
    if (options.sampling_rate.empty())
      refuse("--sampling-rate",
             "give --sampling-rate, the probability with which a record takes part in a step");
    return Poisson{parse_number("--sampling-rate", options.sampling_rate)};
  }
  refuse("--sampling", fmt::format("--sampling is '{}'; give poisson or none", options.sampling));
}

PldAccountant account_for(const Options& options) {
  PldAccountant accountant(parse_adjacency(options.adjacency));
  if (!options.schedule.empty()) {
    read_schedule(options.schedule, accountant);
    return accountant;
  }
  if (options.noise_multiplier.empty() || options.steps.empty()) {
    refuse("account", "give --noise-multiplier and --steps, or --schedule FILE");
  }
  const std::uint64_t steps = parse_count("--steps", options.steps);
  const Event event(Gaussian{parse_number("--noise-multiplier", options.noise_multiplier)},
                    parse_sampling(options), accountant.adjacency());
  if (steps > 0) accountant.add(event, steps);
  return accountant;
}

const char* what_differs(Adjacency adjacency) {
  switch (adjacency) {
    case Adjacency::kAddRemove: return "adding or removing one record";
    case Adjacency::kZeroOut:
      return "leaving out one record's contribution, the number of records being public,";
    case Adjacency::kReplaceOne: return "replacing one record by another";
  }
  return "";
}

std::string how_sampled(const Options& options) {
  if (!options.schedule.empty()) return fmt::format("the schedule in {}", options.schedule);
  const std::string noise = fmt::format("noise multiplier {}", options.noise_multiplier);
  return options.sampling == "none"
             ? fmt::format("every record in every step, {}", noise)
             : fmt::format("Poisson sampling at rate {}, {}", options.sampling_rate, noise);
}

void print_text(const Options& options, const PldAccountant& accountant, const Certified& result,
                double given, bool asked_for_epsilon) {
  const Interval& value = result.value;
  const double epsilon = asked_for_epsilon ? value.upper : given;
  fmt::print("{} ≤ {} at {} = {}, {}\n", asked_for_epsilon ? "epsilon" : "delta",
             round_up(value.upper), asked_for_epsilon ? "delta" : "epsilon", given,
             to_string(accountant.adjacency()));
  fmt::print("  certified      [{:.12g}, {:.12g}], width {:.1e}, by {}; worse direction: {}\n",
             value.lower, value.upper, result.error(), to_string(result.path),
             to_string(result.worst));
  fmt::print("  for            {} steps, {}\n", accountant.steps(), how_sampled(options));
  fmt::print(
      "  in words       {} changes the probability of any outcome\n"
      "                 by a factor of at most e^epsilon = {:.4g}, but for a failure of "
      "probability {}.\n",
      what_differs(accountant.adjacency()), std::exp(epsilon),
      asked_for_epsilon ? fmt::format("{}", given) : round_up(value.upper));
  fmt::print(
      "  provided that  {}\n"
      "                 and the number of steps was fixed in advance.\n",
      options.sampling == "none" && options.schedule.empty()
          ? "gradients are clipped before noise is added"
          : "each record enters each step by its own coin, gradients are clipped before noise is "
            "added,");
}

void print_json(const Options& options, const PldAccountant& accountant, const Certified& result,
                double given, bool asked_for_epsilon) {
  const nlohmann::json interval = {{"lower", result.value.lower}, {"upper", result.value.upper}};
  nlohmann::json out = {
      {"accountant", "pld"},
      {"adjacency", to_string(accountant.adjacency())},
      {"sampling", options.schedule.empty() ? options.sampling : "poisson"},
      {"steps", accountant.steps()},
      {"path", to_string(result.path)},
      {"worst_direction", to_string(result.worst)},
  };
  out["epsilon"] = asked_for_epsilon ? interval : nlohmann::json(given);
  out["delta"] = asked_for_epsilon ? nlohmann::json(given) : interval;
  if (options.schedule.empty()) {
    out["noise_multiplier"] = parse_number("--noise-multiplier", options.noise_multiplier);
    out["sampling_rate"] =
        options.sampling == "none" ? 1.0 : parse_number("--sampling-rate", options.sampling_rate);
  } else {
    out["schedule"] = options.schedule;
  }
  fmt::print("{}\n", out.dump());
}

void run(const Options& options) {
  if (options.delta.empty() == options.epsilon.empty()) {
    refuse("account", "give either --delta, to get epsilon, or --epsilon, to get delta");
  }
  const PldAccountant accountant = account_for(options);
  const bool asked_for_epsilon = !options.delta.empty();
  const double given = asked_for_epsilon ? parse_number("--delta", options.delta)
                                         : parse_number("--epsilon", options.epsilon);
  const Certified result = !asked_for_epsilon ? accountant.delta(given)
                           : options.verify   ? accountant.verify(given)
                                              : accountant.epsilon(given);
  (options.json ? print_json : print_text)(options, accountant, result, given, asked_for_epsilon);
}

}  // namespace

void add_account(CLI::App& command, int&) {
  auto options = std::make_shared<Options>();
  command.add_option("--sampling-rate", options->sampling_rate,
                     "Probability with which a record takes part in a step, in (0, 1]");
  command.add_option("--noise-multiplier", options->noise_multiplier,
                     "Standard deviation of the noise divided by the clip norm, above 0");
  command.add_option("--steps", options->steps, "Number of steps");
  command
      .add_option("--schedule", options->schedule,
                  "JSON lines of {\"noise_multiplier\", \"sampling_rate\", \"steps\"}; - reads "
                  "standard input")
      ->excludes("--sampling-rate")
      ->excludes("--noise-multiplier")
      ->excludes("--steps");
  command.add_option("--delta", options->delta, "Failure probability, in (0, 1): asks for epsilon");
  command.add_option("--epsilon", options->epsilon, "At least 0: asks for delta");
  command.add_option("--sampling", options->sampling, "poisson or none")->capture_default_str();
  command.add_option("--adjacency", options->adjacency, "add_remove, zero_out or replace_one")
      ->capture_default_str();
  command.add_flag("--verify", options->verify, "Evaluate by every independent path and compare");
  command.add_flag("--json", options->json, "Print one JSON object");
  command.callback([options] { run(*options); });
}

}  // namespace discreet::cli
