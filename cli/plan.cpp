#include "discreet/accounting/plan.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/report/plot.h"

namespace discreet::cli {
namespace {

using namespace accounting;
using nlohmann::json;

struct Options {
  std::string target_epsilon, delta;
  std::string sampling_rate, steps;
  std::string dataset_size, batch_size, epochs;
  std::string group_size;
  std::string plot;
  bool json = false;
};

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
};

// One line that overwrites itself, for people only.
class ProgressLine {
 public:
  explicit ProgressLine(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) == 1) {}
  ProgressLine(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (shown_) print(stderr, "\r\x1b[K");
  }
  void operator()(std::string_view what) const {
    if (!shown_) return;
    print(stderr, "\r\x1b[K  {} ...", what);
    std::fflush(stderr);
  }

 private:
  bool shown_;
};

Workload parse_workload(const Options& options) {
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

// Shares of the run as numbers of steps, whole multiples of `unit`.
std::vector<std::uint64_t> marks(const Workload& workload, std::uint64_t unit,
                                 const std::vector<double>& shares) {
  const double units = std::floor(double(workload.steps) / double(unit));
  std::vector<std::uint64_t> out;
  out.reserve(shares.size());
  for (const double share : shares) {
    out.push_back(unit * static_cast<std::uint64_t>(std::max(1.0, std::round(share * units))));
  }
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Plan make_plan(const Options& options, const ProgressLine& progress) {
  if (options.target_epsilon.empty()) refuse("--target-epsilon", "give --target-epsilon");
  if (options.delta.empty()) refuse("--delta", "give --delta, the failure probability");
  Plan plan{parse_workload(options),
            {parse_number("--target-epsilon", options.target_epsilon),
             parse_number("--delta", options.delta)},
            {},
            {},
            {},
            {},
            {},
            {}};
  if (!options.group_size.empty())
    plan.target.group = parse_group_size("--group-size", options.group_size);
  const Workload& workload = plan.workload;
  plan.samplers = plan_samplers(workload, plan.target, [&](auto name) { progress(name); });
  const double sigma = plan.recommended().noise_multiplier;
  progress("epsilon over the run");
  plan.over_run = epsilon_over_run(
      workload, sigma, plan.target,
      marks(workload, workload.sizes ? workload.sizes->batches : 1, {0, .1, .25, .5, .75, 1}));
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

std::string show(const Interval& interval) {
  return fmt::format("[{}, {}]", brief_down(interval.lower), brief_up(interval.upper));
}

std::string show_ratio(const Workload& workload, double ratio) {
  return fmt::format("{:.4g}{}", ratio, workload.sizes ? "" : " / N");
}

std::string counted(std::uint64_t count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
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

// Breaks at spaces so that lines indented by `indent` end before the hundredth column.
std::string wrap(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t begin = 0;
  const std::size_t width = 98 - indent;
  while (text.size() - begin > width) {
    const std::size_t space = text.rfind(' ', begin + width);
    if (space == std::string::npos || space <= begin) break;
    out += text.substr(begin, space - begin) + "\n" + std::string(indent, ' ');
    begin = space + 1;
  }
  return out + text.substr(begin);
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

void print_over_run(const Plan& plan) {
  const bool epochs = plan.workload.sizes.has_value();
  const double unit = epochs ? double(plan.workload.sizes->batches) : 1;
  std::string at, spent;
  for (const Spent& each : plan.over_run) {
    at += fmt::format("{:>13.8g}", double(each.steps) / unit);
    spent += fmt::format("{:>13}", brief_up(each.epsilon.upper));
  }
  print("\nepsilon of a Poisson run planned to end earlier, at that noise, add_remove\n");
  print("  {:<9}{}\n  {:<9}{}\n", epochs ? "epochs" : "steps", at, "epsilon ≤", spent);
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
  if (plan.target.group > 1)
    print("  for groups of up to {} records: all present against all absent\n", plan.target.group);
  print_lines(wrap("for " + given + (follows.empty() ? "" : ": ") + follows, 2) + "\n\n");
  print_samplers(plan);
  print_over_run(plan);
  print_choices(plan);
}

// ---------------------------------------------------------------- for programs

json to_json(const Interval& interval) {
  // JSON has no infinity.
  json out = {{"lower", interval.lower}, {"upper", nullptr}};
  if (std::isfinite(interval.upper)) out["upper"] = interval.upper;
  return out;
}

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
              {"epsilon", to_json(each.epsilon)},
              {"epsilon_without_amplification", to_json(each.unamplified)},
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
  out["epsilon_over_run"] = json::array();
  for (const Spent& each : plan.over_run) {
    json row = {{"steps", each.steps}, {"epsilon", to_json(each.epsilon)}};
    if (plan.workload.sizes) row["epochs"] = each.steps / plan.workload.sizes->batches;
    out["epsilon_over_run"].push_back(row);
  }
  out["adaptive_clipping"] = {
      {"counts", plan.adaptive.counts},
      {"count_deviation", plan.adaptive.count_deviation},
      {"noise_multiplier", plan.adaptive.noise_multiplier},
      {"epsilon", to_json(plan.adaptive.epsilon)},
      {"epsilon_if_unchanged", to_json(plan.adaptive.epsilon_if_unchanged)}};
  out["half_the_noise"] = nullptr;
  if (plan.larger) {
    json& larger = out["half_the_noise"] = to_json(plan.larger->workload);
    larger["noise_multiplier"] = plan.larger->noise_multiplier;
    larger["epsilon"] = to_json(plan.larger->epsilon);
    larger[plan.workload.sizes ? "noise_to_batch_ratio" : "noise_to_rate_ratio"] =
        plan.larger->noise_to_batch;
  }
  if (plan.shuffled) {
    out["shuffled_at_this_noise"] = {{"adjacency", to_string(Adjacency::kZeroOut)},
                                     {"epsilon", to_json(*plan.shuffled)}};
  }
  out["group_size"] = plan.target.group;
  if (plan.one_record) out["epsilon_of_one_record"] = to_json(*plan.one_record);
  print("{}\n", out.dump());
}

// ---------------------------------------------------------------- the picture

void write_plot(const Plan& plan, const std::string& file) {
  std::vector<double> shares;
  // Epsilon rises steeply at first: the square spreads the points.
  for (int i = 1; i <= 32; ++i) shares.push_back(i * i / 1024.0);
  const PlannedSampler& best = plan.recommended();
  const double unit = plan.workload.sizes ? double(plan.workload.sizes->batches) : 1;
  report::Plot plot;
  plot.width = 720;
  plot.height = 440;
  plot.title =
      fmt::format("ε over the run at noise multiplier {}", brief_up(best.noise_multiplier));
  plot.x_label = plan.workload.sizes ? "epochs" : "steps";
  plot.y_label = "ε (add_remove)";
  plot.levels = {{plan.target.epsilon, fmt::format("target ε = {}", plan.target.epsilon), true}};
  report::Plot::Curve curve{"certified upper bound of a run that ends there", {{0, 0}}};
  for (const Spent& each : epsilon_over_run(plan.workload, best.noise_multiplier, plan.target,
                                            marks(plan.workload, 1, shares))) {
    curve.points.push_back({double(each.steps) / unit, each.epsilon.upper});
  }
  plot.curves = {std::move(curve)};
  write_atomically(file, bytes_of(svg_file(plot, fmt::format("{}, Poisson sampling, δ = {}",
                                                             describe(plan.workload).front(),
                                                             plan.target.delta))));
}

void run(const Options& options) {
  const Plan plan = [&] {
    const ProgressLine progress(!options.json);
    Plan made = make_plan(options, progress);
    progress("plot");
    if (!options.plot.empty()) write_plot(made, options.plot);
    return made;
  }();
  (options.json ? print_json : print_text)(plan);
}

}  // namespace

void add_plan(Command& command) {
  auto options = std::make_shared<Options>();
  command.option("--target-epsilon", "EPSILON", options->target_epsilon, "Privacy target, above 0");
  command.option("--delta", "DELTA", options->delta, "Failure probability, in (0, 1)");
  command.option("--dataset-size", "N", options->dataset_size, "Number of records, public");
  command.option("--batch-size", "N", options->batch_size, "Expected records in a step");
  command.option("--epochs", "N", options->epochs, "Passes over the data");
  command.option("--sampling-rate", "RATE", options->sampling_rate,
                 "Instead of sizes: probability that a record takes part in a step");
  command.option("--steps", "N", options->steps, "Instead of sizes: number of steps");
  command.option("--group-size", "N", options->group_size,
                 "Keep the target for groups of up to N records, such as those of one person: all "
                 "of them present against all of them absent");
  command.option("--plot", "FILE", options->plot, "Write epsilon over the run as an SVG file")
      .writes_file();
  command.json(options->json);
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
