#include "discreet/accounting/plan.h"

#include <fmt/core.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/budget/planning.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using namespace accounting;
using nlohmann::json;

[[noreturn]] void refuse(const char* option, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, option, sentence);
}

// Everything that is printed.
struct Plan {
  Workload workload;
  Target target;
  SamplerPlan samplers;
  std::vector<Spent> over_run;
  AdaptiveClipping adaptive;
  std::optional<LargerBatch> larger;
  std::optional<Interval> shuffled;    // at Poisson's noise
  std::optional<Interval> one_record;  // where the target is for a group

  const PlannedSampler& recommended() const { return samplers.planned.front(); }
  OverRun run() const { return {workload, recommended().noise_multiplier, target}; }
};

Workload parse_workload(const PlanOptions& options) {
  const bool rate = !options.sampling_rate.empty() || !options.steps.empty();
  const bool sizes =
      !options.dataset_size.empty() || !options.batch_size.empty() || !options.epochs.empty();
  if (rate == sizes) {
    refuse("plan",
           "give either --sampling-rate and --steps, or --dataset-size, --batch-size and --epochs");
  }
  if (rate) {
    if (options.sampling_rate.empty())
      refuse("--sampling-rate", "with --steps give --sampling-rate");
    if (options.steps.empty()) refuse("--steps", "with --sampling-rate give --steps");
    return workload_from_rate(parse_number("--sampling-rate", options.sampling_rate),
                              parse_count("--steps", options.steps));
  }
  if (options.dataset_size.empty() || options.batch_size.empty() || options.epochs.empty()) {
    refuse("plan", "--dataset-size, --batch-size and --epochs are needed together");
  }
  return workload_from_sizes(parse_count("--dataset-size", options.dataset_size),
                             parse_count("--batch-size", options.batch_size),
                             parse_count("--epochs", options.epochs));
}

Plan make_plan(const PlanOptions& options, const ProgressLine& progress) {
  const Target target = parse_target(options);
  Plan plan{parse_workload(options), target, {}, {}, {}, {}, {}, {}};
  const Workload& workload = plan.workload;
  plan.samplers = plan_samplers(workload, plan.target, [&](auto name) { progress(name); });
  const double sigma = plan.recommended().noise_multiplier;
  progress("epsilon over the run");
  plan.over_run = plan.run().table();
  plan.adaptive = price_of_adaptive_clipping(workload, sigma, plan.target);
  progress("larger batches");
  plan.larger = batch_that_halves_noise(workload, sigma, plan.target);
  if (plan.target.group > 1) {
    plan.one_record = epsilon_over_run(workload, sigma, {plan.target.epsilon, plan.target.delta},
                                       {workload.steps})
                          .front()
                          .epsilon;
  } else if (workload.sizes && sigma >= 0.01 && sigma <= 1000) {
    plan.shuffled = shuffled_at(workload, sigma, plan.target.delta);
  }
  return plan;
}

// ---------------------------------------------------------------- for people

std::string show_ratio(const Workload& workload, double ratio) {
  return fmt::format("{:.4g}{}", ratio, workload.sizes ? "" : " / N");
}

// What was given, and what follows from it.
std::array<std::string, 2> describe(const Workload& workload) {
  const std::string steps =
      fmt::format("{} at rate {:.6g}", counted(workload.steps, "step"), workload.rate);
  if (!workload.sizes) return {steps, ""};
  return {fmt::format("{}, batches of {}, {}", counted(workload.sizes->records, "record"),
                      workload.sizes->batch, counted(workload.sizes->epochs, "epoch")),
          steps};
}

void item(const char* name, const std::string& sentence) {
  print_lines(fmt::format("  {:<19}{}\n", name, wrap(sentence, 21)));
}

void print_samplers(const Plan& plan) {
  constexpr const char* kRow = "  {:<16}{:<12}{:>11}  {:<24}{:>15}{:>15}\n";
  print(kRow, "sampler", "adjacency", "noise", "certified epsilon", "without", "noise");
  print(kRow, "", "", "multiplier", "", "amplification", "/ batch");
  for (const PlannedSampler& each : plan.samplers.planned) {
    print(kRow, name(each.sampling), to_string(each.adjacency), brief_up(each.noise_multiplier),
          show(each.epsilon), brief_up(each.unamplified.upper),
          show_ratio(plan.workload, each.noise_to_batch));
  }
  for (const SkippedSampler& each : plan.samplers.skipped) {
    print_lines(fmt::format("  {:<16}{}\n", each.sampling, wrap(each.reason, 18)));
  }
}

void print_choices(const Plan& plan) {
  print("\nother choices, from Poisson sampling (add_remove)\n");
  const AdaptiveClipping& adaptive = plan.adaptive;
  const double rise = adaptive.noise_multiplier / plan.recommended().noise_multiplier - 1;
  item("adaptive clipping",
       fmt::format("{} counts of deviation {:.4g} beside the gradient need noise multiplier {} "
                   "({:+.2g}%), or cost epsilon ≤ {} if it stays",
                   adaptive.counts, adaptive.count_deviation, brief_up(adaptive.noise_multiplier),
                   100 * rise, brief_up(adaptive.epsilon_if_unchanged.upper)));
  if (plan.larger) {
    const LargerBatch& larger = *plan.larger;
    const std::string what = larger.workload.sizes
                                 ? fmt::format("batches of {}", larger.workload.sizes->batch)
                                 : fmt::format("sampling rate {:.6g}", larger.workload.rate);
    item("half the noise",
         fmt::format("{} over as many epochs: {} steps, noise multiplier {}, noise / batch {}",
                     what, larger.workload.steps, brief_up(larger.noise_multiplier),
                     show_ratio(larger.workload, larger.noise_to_batch)));
  } else {
    item("half the noise", "not even full batches over as many epochs give half the noise / batch");
  }
  if (plan.one_record) {
    item("one record",
         fmt::format("epsilon ≤ {} at the same delta and noise", brief_up(plan.one_record->upper)));
  }
  if (plan.shuffled) {
    const bool broken = plan.shuffled->lower > plan.target.epsilon;
    item("shuffled batches",
         fmt::format("at this noise a known attack shows epsilon ≥ {}{}. The proven bound is {} "
                     "(zero_out). Shuffling does not amplify as Poisson sampling does.",
                     brief_down(plan.shuffled->lower), broken ? ", above the target" : "",
                     brief_up(plan.shuffled->upper)));
  }
}

void print_text(const Plan& plan) {
  const auto [given, follows] = describe(plan.workload);
  print("noise multiplier {} keeps epsilon ≤ {} at delta = {}, add_remove, Poisson sampling\n",
        round_up(plan.recommended().noise_multiplier), plan.target.epsilon, plan.target.delta);
  print_lines(describe_group(plan.target));
  print_lines(wrap("for " + given + (follows.empty() ? "" : ": ") + follows, 2) + "\n\n");
  print_samplers(plan);
  print_over_run(plan.workload, plan.over_run);
  print_choices(plan);
}

// ---------------------------------------------------------------- for programs

json to_json(const Workload& workload) {
  json out = {{"sampling_rate", workload.rate}, {"steps", workload.steps}};
  if (workload.sizes) {
    out["dataset_size"] = workload.sizes->records;
    out["batch_size"] = workload.sizes->batch;
    out["epochs"] = workload.sizes->epochs;
    out["batches_per_epoch"] = workload.sizes->batches;
  }
  return out;
}

json to_json(const Plan& plan, const PlannedSampler& each) {
  const char* ratio = plan.workload.sizes ? "noise_to_batch_ratio" : "noise_to_rate_ratio";
  json out = {{"sampling", name(each.sampling)},
              {"adjacency", to_string(each.adjacency)},
              {"noise_multiplier", each.noise_multiplier},
              {"steps", plan.workload.steps},
              {"epsilon", json_of(each.epsilon)},
              {"epsilon_without_amplification", json_of(each.unamplified)},
              {ratio, each.noise_to_batch}};
  return out;
}

void print_json(const Plan& plan) {
  const PlannedSampler& best = plan.recommended();
  json out = to_json(plan.workload);
  out.update(to_json(plan, best));
  out["accountant"] = "pld";
  out["target_epsilon"] = plan.target.epsilon;
  out["delta"] = plan.target.delta;
  out["samplers"] = json::array();
  for (const PlannedSampler& each : plan.samplers.planned) {
    out["samplers"].push_back(to_json(plan, each));
  }
  out["not_planned"] = json::array();
  for (const SkippedSampler& each : plan.samplers.skipped) {
    out["not_planned"].push_back({{"sampling", each.sampling}, {"reason", each.reason}});
  }
  out["epsilon_over_run"] = json_of(plan.workload, plan.over_run);
  out["adaptive_clipping"] = {
      {"counts", plan.adaptive.counts},
      {"count_deviation", plan.adaptive.count_deviation},
      {"noise_multiplier", plan.adaptive.noise_multiplier},
      {"epsilon", json_of(plan.adaptive.epsilon)},
      {"epsilon_if_unchanged", json_of(plan.adaptive.epsilon_if_unchanged)}};
  out["half_the_noise"] = nullptr;
  if (plan.larger) {
    json& larger = out["half_the_noise"] = to_json(plan.larger->workload);
    larger["noise_multiplier"] = plan.larger->noise_multiplier;
    larger["epsilon"] = json_of(plan.larger->epsilon);
    larger[plan.workload.sizes ? "noise_to_batch_ratio" : "noise_to_rate_ratio"] =
        plan.larger->noise_to_batch;
  }
  if (plan.shuffled) {
    out["shuffled_at_this_noise"] = {{"adjacency", to_string(Adjacency::kZeroOut)},
                                     {"epsilon", json_of(*plan.shuffled)}};
  }
  out["group_size"] = plan.target.group;
  if (plan.one_record) out["epsilon_of_one_record"] = json_of(*plan.one_record);
  print("{}\n", out.dump());
}

void plan_noise(const PlanOptions& options) {
  const Plan plan = [&] {
    const ProgressLine progress(!options.json);
    Plan made = make_plan(options, progress);
    progress("plot");
    if (!options.plot.empty()) made.run().write_plot(options.plot, describe(made.workload).front());
    return made;
  }();
  (options.json ? print_json : print_text)(plan);
}

void run(const PlanOptions& options) {
  if (!options.policy.empty() || !options.config.empty()) return plan_policy(options);
  if (!options.noise_multiplier.empty()) return plan_steps(options);
  plan_noise(options);
}

}  // namespace

void add_plan(Command& command) {
  auto options = std::make_shared<PlanOptions>();
  command.option("--target-epsilon", "EPSILON", options->target_epsilon, "Privacy target, above 0");
  command.option("--delta", "DELTA", options->delta, "Failure probability, in (0, 1)");
  command.option("--dataset-size", "N", options->dataset_size, "Number of records, public");
  command.option("--batch-size", "N", options->batch_size, "Expected records in a step");
  command.option("--epochs", "N", options->epochs, "Passes over the data");
  command.option("--sampling-rate", "RATE", options->sampling_rate,
                 "Instead of sizes: probability that a record takes part in a step");
  command.option("--steps", "N", options->steps, "Instead of sizes: number of steps");
  command
      .option("--noise-multiplier", "N", options->noise_multiplier,
              "Instead of the length of the run: find how many steps and epochs this noise affords")
      .excludes({"--epochs", "--steps"});
  command.option("--group-size", "N", options->group_size,
                 "Keep the target for groups of up to N records, such as those of one person: all "
                 "of them present against all of them absent");
  command
      .option("--policy", "FILE", options->policy,
              "Find the epsilon of a contribution of each class of this corpus policy in a run of "
              "--config, and the stddev that the target needs")
      .reads_file()
      .excludes({"--dataset-size", "--batch-size", "--epochs", "--sampling-rate", "--steps",
                 "--noise-multiplier", "--group-size"});
  command
      .option("--config", "FILE", options->config,
              "Configuration of the run, with --policy; its section corpus is not used")
      .reads_file();
  command.option("--plot", "FILE", options->plot, "Write epsilon over the run as an SVG file")
      .writes_file();
  command.json(options->json);
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
