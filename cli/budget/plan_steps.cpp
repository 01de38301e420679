#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/budget/planning.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/accounting/longest_run.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using namespace accounting;
using nlohmann::json;

// Everything that is printed.
struct Steps {
  Workload workload;  // of the Poisson run; its sizes are those of one epoch
  double noise_multiplier;
  Target target;
  LongestRuns runs;
  std::vector<Spent> over_run;

  const LongestRun& recommended() const { return runs.planned.front(); }
  OverRun run() const { return {workload, noise_multiplier, target}; }
  std::string who() const {
    if (!workload.sizes) return fmt::format("sampling rate {:.6g}", workload.rate);
    return fmt::format("{}, batches of {}", counted(workload.sizes->records, "record"),
                       workload.sizes->batch);
  }
};

[[noreturn]] void refuse(const char* option, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, option, sentence);
}

Workload parse_epoch(const PlanOptions& options) {
  const bool sizes = !options.dataset_size.empty() || !options.batch_size.empty();
  if (sizes == !options.sampling_rate.empty())
    refuse("plan",
           "with --noise-multiplier give either --dataset-size and --batch-size, or "
           "--sampling-rate");
  if (!sizes) return workload_from_rate(parse_number("--sampling-rate", options.sampling_rate), 1);
  if (options.dataset_size.empty() || options.batch_size.empty())
    refuse("plan", "--dataset-size and --batch-size are needed together");
  return workload_from_sizes(parse_count("--dataset-size", options.dataset_size),
                             parse_count("--batch-size", options.batch_size), 1);
}

Steps find_steps(const PlanOptions& options, const ProgressLine& progress) {
  const Target target = parse_target(options);
  Steps out{parse_epoch(options),
            parse_number("--noise-multiplier", options.noise_multiplier),
            target,
            {},
            {}};
  out.runs = longest_runs(out.workload, out.noise_multiplier, target,
                          [&](std::string_view name) { progress(name); });
  out.workload.steps = out.recommended().steps;
  progress("epsilon over the run");
  out.over_run = out.run().table();
  return out;
}

// The steps of an epoch of a sampler: without sampling, a step takes every record.
std::uint64_t steps_per_epoch(const Steps& found, const LongestRun& each) {
  return std::holds_alternative<NoSampling>(each.sampling) ? 1 : found.workload.sizes->batches;
}

std::optional<std::uint64_t> whole_epochs(const Steps& found, const LongestRun& each) {
  if (!found.workload.sizes) return std::nullopt;
  return each.steps / steps_per_epoch(found, each);
}

// What was added to find that it does not fit.
std::string more_of(const LongestRun& each) {
  if (each.beyond->steps != each.steps + each.unit)
    return fmt::format("{} steps", each.beyond->steps - each.steps);
  return each.unit > 1 ? "epoch" : "step";
}

void print_text(const Steps& found) {
  const LongestRun& best = found.recommended();
  const auto epochs = whole_epochs(found, best);
  print(
      "noise multiplier {} affords {}{}\n"
      "  within epsilon ≤ {} at delta = {}, add_remove, Poisson sampling\n",
      found.noise_multiplier, counted(best.steps, "step"),
      epochs ? fmt::format(" ({})", counted(*epochs, "whole epoch")) : "", found.target.epsilon,
      found.target.delta);
  print_lines(describe_group(found.target));
  print("for {}{}\n\n", found.who(),
        found.workload.sizes
            ? fmt::format(": {} an epoch at rate {:.6g}",
                          counted(found.workload.sizes->batches, "step"), found.workload.rate)
            : "");
  constexpr const char* kRow = "  {:<16}{:<12}{:>17}{:>14}  {:<20}{}\n";
  print(kRow, "sampler", "adjacency", "steps", "whole epochs", "certified epsilon",
        "with one more");
  for (const LongestRun& each : found.runs.planned) {
    const auto whole = whole_epochs(found, each);
    print(kRow, name(each.sampling), to_string(each.adjacency), each.steps,
          whole ? fmt::format("{}", *whole) : "", show(each.epsilon),
          each.beyond ? fmt::format("{} ({})", brief_up(each.beyond->epsilon.upper), more_of(each))
                      : "");
  }
  for (const SkippedSampler& each : found.runs.skipped)
    print_lines(fmt::format("  {:<16}{}\n", each.sampling, wrap(each.reason, 18)));
  print_over_run(found.workload, found.over_run);
}

json to_json(const Steps& found, const LongestRun& each) {
  json out = {{"sampling", name(each.sampling)},
              {"adjacency", to_string(each.adjacency)},
              {"steps", each.steps},
              {"whole_epochs", nullptr},
              {"epsilon", json_of(each.epsilon)},
              {"beyond", nullptr}};
  if (const auto epochs = whole_epochs(found, each)) out["whole_epochs"] = *epochs;
  if (each.beyond)
    out["beyond"] = {{"steps", each.beyond->steps}, {"epsilon", json_of(each.beyond->epsilon)}};
  return out;
}

void print_json(const Steps& found) {
  json out = to_json(found, found.recommended());
  out.update({{"accountant", "pld"},
              {"noise_multiplier", found.noise_multiplier},
              {"target_epsilon", found.target.epsilon},
              {"delta", found.target.delta},
              {"group_size", found.target.group},
              {"sampling_rate", found.workload.rate},
              {"samplers", json::array()},
              {"not_planned", json::array()},
              {"epsilon_over_run", json_of(found.workload, found.over_run)}});
  if (found.workload.sizes)
    out.update({{"dataset_size", found.workload.sizes->records},
                {"batch_size", found.workload.sizes->batch},
                {"batches_per_epoch", found.workload.sizes->batches}});
  for (const LongestRun& each : found.runs.planned) out["samplers"].push_back(to_json(found, each));
  for (const SkippedSampler& each : found.runs.skipped)
    out["not_planned"].push_back({{"sampling", each.sampling}, {"reason", each.reason}});
  print("{}\n", out.dump());
}

}  // namespace

void plan_steps(const PlanOptions& options) {
  const Steps found = [&] {
    const ProgressLine progress(!options.json);
    Steps made = find_steps(options, progress);
    progress("plot");
    if (!options.plot.empty()) made.run().write_plot(options.plot, made.who());
    return made;
  }();
  (options.json ? print_json : print_text)(found);
}

}  // namespace discreet::cli
