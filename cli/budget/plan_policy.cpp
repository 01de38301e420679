#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/budget/planning.h"
#include "cli/budget/sampling.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/admission/policy.h"
#include "discreet/base/error.h"
#include "discreet/config/config_read.h"
#include "discreet/training/policy_plan.h"
#include "discreet/training/train.h"

namespace discreet::cli {
namespace {

using nlohmann::json;
using training::ClassPlan;

struct Asked {
  training::PolicyPlan plan;
  std::optional<double> target;
};

// The noise of the policy that a class meets: the smallest of its blocks, as text if there is one
// block, otherwise as a factor on all of them.
std::string show_noise(const ClassPlan& own, double factor) {
  const auto& blocks = own.terms.resolution.plan.blocks;
  if (blocks.size() == 1) return brief_up(blocks.front().stddev * factor);
  return fmt::format("{} times", brief_up(factor));
}

std::string show_needed(const ClassPlan& own) {
  if (!own.factor_for_target) return "none up to 10^6 times";
  return *own.factor_for_target == 0 ? "any" : show_noise(own, *own.factor_for_target);
}

double smallest_clip(const ClassPlan& own) {
  double least = own.terms.resolution.plan.flat_clip.value_or(HUGE_VAL);
  for (const RouteBlock& block : own.terms.resolution.plan.blocks)
    least = std::min(least, block.clip);
  return least;
}

template <class... T>
void print_row(const T&... cells) {
  std::string row =
      fmt::format("  {:<16}{:>8}{:>10}{:>10}{:>12}{:>10} {:<9}{:>11}{:>11}", cells...);
  row.erase(row.find_last_not_of(' ') + 1);
  print("{}\n", row);
}

void print_text(const Asked& asked) {
  const training::PolicyPlan& plan = asked.plan;
  print("policy {}: epsilon of a contribution after all of its uses, zero_out, by {}\n",
        plan.corpus, plan.accountant);
  print("for a run of {}, {}, {} noise\n\n", counted(plan.steps, "step"),
        describe_sampling(plan.sampling), plan.noise);
  print_row("class", "uses", "clip norm", "clipped", "multiplier", "epsilon", "at delta", "stddev",
            asked.target ? "stddev for" : "");
  print_row("", "", "allowed", "to", "of a use", "≤", "", "to clip at",
            asked.target ? "target" : "");
  print_row("", "", "", "", "", "", "", "allowed", "");
  for (const ClassPlan& own : plan.classes)
    print_row(own.name, own.most_uses, own.terms.descriptor.clip_norm.to_text(),
              brief_down(smallest_clip(own)), brief_down(own.multiplier),
              brief_up(own.account.epsilon), fmt::format("{}", own.account.delta),
              show_noise(own, own.factor_for_clip_norm), asked.target ? show_needed(own) : "");
  print("\nof the policy now: stddev {}\n", [&] {
    std::string out;
    for (const ClassPlan& own : plan.classes)
      for (const RouteBlock& block : own.terms.resolution.plan.blocks) {
        const std::string each = fmt::format("{} {}", block.name, block.stddev);
        if (out.find(each) == std::string::npos) out += (out.empty() ? "" : ", ") + each;
      }
    return out;
  }());
  if (plan.forecast.epsilon)
    print("the run alone: epsilon ≤ {} at delta = {}, if nobody learns whom it sampled\n",
          brief_up(plan.forecast.epsilon->upper), plan.delta);
  print_lines(
      "A contribution is clipped further than its class allows where the noise would otherwise be "
      "too\n"
      "small for its promise. \"any\": the class's noise_multiplier keeps the target with any "
      "stddev.\n");
}

json to_json(const Asked& asked, const ClassPlan& own) {
  json blocks = json::array();
  for (const RouteBlock& block : own.terms.resolution.plan.blocks)
    blocks.push_back({{"name", block.name}, {"stddev", block.stddev}, {"clip", block.clip}});
  json out = {{"class", own.name},
              {"most_uses", own.most_uses},
              {"clip_norm", own.terms.descriptor.clip_norm.nearest()},
              {"promised_multiplier", own.terms.descriptor.noise_multiplier.nearest()},
              {"required_multiplier", own.terms.resolution.required_multiplier},
              {"multiplier", own.multiplier},
              {"amplified", own.terms.amplified},
              {"epsilon", own.account.epsilon},
              {"delta", own.account.delta},
              {"blocks", std::move(blocks)},
              {"factor_for_clip_norm", own.factor_for_clip_norm}};
  if (asked.target) {
    out["factor_for_target"] = nullptr;
    if (own.factor_for_target) out["factor_for_target"] = *own.factor_for_target;
  }
  return out;
}

void print_json(const Asked& asked) {
  const training::PolicyPlan& plan = asked.plan;
  json out = {{"policy", plan.corpus},      {"accountant", plan.accountant},
              {"adjacency", "zero_out"},    {"steps", plan.steps},
              {"noise_family", plan.noise}, {"target_epsilon", nullptr},
              {"epsilon_of_run", nullptr},  {"classes", json::array()}};
  if (asked.target) out["target_epsilon"] = *asked.target;
  if (plan.forecast.epsilon) out["epsilon_of_run"] = json_of(*plan.forecast.epsilon);
  for (const ClassPlan& own : plan.classes) out["classes"].push_back(to_json(asked, own));
  print("{}\n", out.dump());
}

void draw(const Asked& asked, const std::string& file) {
  report::Plot plot =
      plot_of("ε of a contribution by its uses", "share of its uses, in %", "ε (zero_out)");
  if (asked.target)
    plot.levels = {{*asked.target, fmt::format("target ε = {}", *asked.target), true}};
  constexpr std::size_t kMostCurves = 4;
  for (const ClassPlan& own : asked.plan.classes) {
    if (plot.curves.size() == kMostCurves) break;
    report::Plot::Curve curve{own.name, {{0, 0}}};
    for (std::size_t i = 0; i < own.epsilon.size(); ++i)
      curve.points.push_back({100.0 * double(i + 1) / double(own.epsilon.size()), own.epsilon[i]});
    plot.curves.push_back(std::move(curve));
  }
  write_plot(plot, fmt::format("policy {}, by {}", asked.plan.corpus, asked.plan.accountant), file);
}

}  // namespace

void plan_policy(const PlanOptions& options) {
  if (options.policy.empty() || options.config.empty())
    throw Error(ErrorCode::kInvalidDpConfig, "plan", "--policy and --config are needed together");
  const admission::Policy policy =
      admission::read_policy(read_input(options.policy), options.policy);
  const LoadedConfig loaded =
      training::load_training_config(read_config_file(options.config), options.config, {},
                                     std::filesystem::path(options.config).parent_path());
  Asked asked;
  if (!options.target_epsilon.empty()) {
    asked.target = parse_number("--target-epsilon", options.target_epsilon);
    if (!(*asked.target > 0))
      throw Error(
          ErrorCode::kInvalidDpConfig, "--target-epsilon",
          fmt::format("--target-epsilon is '{}'; give a number above 0", options.target_epsilon));
  }
  std::optional<double> delta;
  if (!options.delta.empty()) delta = parse_delta("--delta", options.delta);
  asked.plan = training::plan_policy(loaded.config, policy, asked.target, delta);
  if (!options.plot.empty()) draw(asked, options.plot);
  (options.json ? print_json : print_text)(asked);
}

}  // namespace discreet::cli
