#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/budget/sampling.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "cli/training_run.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/hash.h"
#include "discreet/config/config_document.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/training/run_plan.h"
#include "discreet/training/train.h"

namespace discreet::cli {
namespace {

using namespace mechanism;

struct Options {
  std::string file;
  std::vector<std::string> settings;
  std::string seed, insecure_seed;
  std::string on_bad_row = "reject";
  bool json = false;
  bool schema = false;
  bool reference = false;
  bool resolved = false;
  bool no_data = false;
  std::string ghost_bound;
};

struct Checked {
  LoadedConfig loaded;
  std::optional<training::Plan> plan;  // none with --no-data

  const DpConfig& privacy() const { return loaded.config.privacy; }
};

LoadedConfig load(const Options& options) {
  return training::load_training_config(
      read_config_file(options.file), options.file,
      training_settings(options.settings, options.seed, options.insecure_seed),
      std::filesystem::path(options.file).parent_path());
}

// The cost of clipping from backward passes is mentioned above this share of epsilon.
constexpr double kNoticeable = 0.02;

void note_costs(Checked& checked) {
  const DpConfig& c = checked.privacy();
  const training::Plan& plan = *checked.plan;
  std::vector<std::string>& notes = checked.loaded.notes;
  notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  notes.insert(notes.end(), plan.forecast.warnings.begin(), plan.forecast.warnings.end());
  const std::optional<accounting::Interval>& epsilon = plan.forecast.epsilon;
  if (epsilon && plan.forecast.is_ended_by_budget())
    notes.push_back(fmt::format(
        "the budget ends the run after {} steps{}: one more would spend more than target_epsilon "
        "{}; raise noise_multiplier, or see 'discreet plan'",
        plan.forecast.steps, c.target_steps ? fmt::format(" of {}", *c.target_steps) : "",
        c.target_epsilon));
  if (epsilon && plan.epsilon_explicit &&
      epsilon->upper > *plan.epsilon_explicit * (1 + kNoticeable))
    notes.push_back(fmt::format(
        "{} charges the rounding of its sums: epsilon {} instead of {} ({:.0f}% more); to avoid "
        "it, "
        "set {}, which computes the gradient of each record",
        c.clip_ghost ? "ghost clipping" : "the fused kernel", brief_up(epsilon->upper),
        brief_up(*plan.epsilon_explicit), 100 * (epsilon->upper / *plan.epsilon_explicit - 1),
        c.clip_ghost ? "clipping.ghost: false" : "fused_kernel: false"));
  if (epsilon && plan.forecast.bounded_by != spelling(c.accountant))
    notes.push_back(
        fmt::format("accountant {} has no bound for subsampled steps; the upper end is "
                    "that of {}",
                    spelling(c.accountant), plan.forecast.bounded_by));
}

Checked check(const Options& options) {
  Checked out{load(options), std::nullopt};
  if (options.no_data) return out;
  out.plan = training::plan_run(out.loaded.config, parse_threads(""), bad_row(options.on_bad_row));
  note_costs(out);
  return out;
}

std::string describe(const DataConfig& d) {
  switch (d.format) {
    case DataFormat::kDigits: return "digits, embedded";
    case DataFormat::kIdx:
    case DataFormat::kNpy: return fmt::format("{} of {}", spelling(d.format), *d.train);
    case DataFormat::kCsv: break;
  }
  std::string out =
      fmt::format("csv of {}: {} numeric, {} categorical, label {}", *d.train,
                  d.numeric.size() + d.private_bounds.size(), d.categorical.size(), *d.label);
  if (!d.hashed.empty())
    out +=
        fmt::format("; {} hashed into {} features each", fmt::join(d.hashed, ", "), d.hash_buckets);
  if (!d.private_bounds.empty()) {
    out += fmt::format("; bounds of {} released at noise {}", fmt::join(d.private_bounds, ", "),
                       d.private_bounds_noise);
  }
  return out;
}

std::string describe(const ModelConfig& m) {
  std::string out(spelling(m.kind));
  if (m.kind == ModelKind::kMlp) {
    out += fmt::format(" of {}, {}", fmt::join(m.hidden, "-"), spelling(m.activation));
  }
  if (m.features != FeatureMapKind::kNone) {
    out += fmt::format(" on {} features", spelling(m.features));
  }
  return out;
}

std::string describe(const OptimizerConfig& o) {
  std::string out =
      fmt::format("{} at rate {}, {}", spelling(o.kind), o.rate, spelling(o.schedule));
  if (o.kind == OptimizerKind::kSgd && o.momentum > 0)
    out += fmt::format(", momentum {}", o.momentum);
  if (o.weight_decay > 0) out += fmt::format(", weight decay {}", o.weight_decay);
  if (o.average) out += fmt::format(", average {}", *o.average);
  return out;
}

// Of the first step, if a mode that follows the budget decides it.
double noise_multiplier(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  return checked.plan && c.mode != ScheduleMode::kFixed ? checked.plan->forecast.sigma
                                                        : c.noise_multiplier;
}

void print_noise(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  if (checked.plan && !checked.plan->classes.empty()) {
    // The configuration's multiplier and norm have no meaning for contributions.
    for (const training::Corpus::ClassBounds& own : checked.plan->classes) {
      std::vector<std::string> clip;
      for (const auto& [block, bound] : own.clip)
        clip.push_back(fmt::format("{} {}", block, bound));
      print("  class          {}: {} contributions, {} noise at multiplier {}, norm {}{}\n",
            own.name, own.contributions, spelling(c.noise_family), own.noise_multiplier,
            fmt::format("{}", fmt::join(clip, ", ")),
            own.flat_clip ? fmt::format(" inside {}", *own.flat_clip) : "");
    }
    return;
  }
  print("  clipping       {}, norm {}\n", spelling(c.clip_strategy),
        c.clip_norm_adaptive ? fmt::format("adaptive from {}", c.clip_norm)
                             : fmt::format("{}", c.clip_norm));
  print("  noise          {} at multiplier {}, mode {}\n", spelling(c.noise_family),
        noise_multiplier(checked), spelling(c.mode));
}

void print_plan(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  const Forecast& forecast = checked.plan->forecast;
  if (forecast.epsilon)
    print("  planned run    {} steps spend epsilon ≤ {} at delta {}, {}\n", forecast.steps,
          round_up(forecast.epsilon->upper), c.target_delta, spelling(c.adjacency));
  else if (!forecast.unknown.empty())
    print("  planned run    epsilon not known in advance, at most {} at delta {}, {}: {}\n",
          c.target_epsilon, c.target_delta, spelling(c.adjacency), forecast.unknown);
  else
    print("  planned run    {} steps without noise\n", forecast.steps);
}

void print_text(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  print("OK\n  hash           {}\n", to_hex(config_hash(checked.loaded.config)));
  if (checked.plan) {
    print("  data           {}\n  model          {}\n  optimizer      {}\n",
          describe(checked.loaded.config.data), describe(checked.loaded.config.model),
          describe(checked.loaded.config.optimizer));
  }
  if (c.enabled) {
    print("  sampler        {}: {}\n", spelling(c.sampling_mode),
          describe_sampling(sampling_of(c)));
    print_noise(checked);
    print("  budget         epsilon {} at delta {}, {}, by {}\n", c.target_epsilon, c.target_delta,
          spelling(c.adjacency), spelling(c.accountant));
  }
  if (checked.plan && c.enabled) print_plan(checked);
  for (const std::string& reason : not_private_reasons(c)) print("  not_private    {}\n", reason);
  for (const std::string& note : checked.loaded.notes) print("  note           {}\n", note);
  if (!checked.plan) return;
  for (const std::string& warning : checked.plan->warnings)
    print("  warning        {} (confidential: it depends on the records)\n", warning);
}

// Numbers that JSON cannot hold are null.
nlohmann::json finite(double x) { return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(); }

nlohmann::json to_json(const training::Corpus::ClassBounds& own) {
  nlohmann::json clip = nlohmann::json::object();
  for (const auto& [block, bound] : own.clip) clip[block] = bound;
  return {{"class", own.name},
          {"contributions", own.contributions},
          {"noise_multiplier", own.noise_multiplier},
          {"clip_norm", std::move(clip)},
          {"flat_clip_norm", own.flat_clip ? nlohmann::json(*own.flat_clip) : nlohmann::json()}};
}

void print_json(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  nlohmann::json out = {{"ok", true},
                        {"hash", to_hex(config_hash(checked.loaded.config))},
                        {"enabled", c.enabled},
                        {"not_private", not_private_reasons(c)},
                        {"notes", checked.loaded.notes},
                        {"target_epsilon", c.target_epsilon},
                        {"delta", c.target_delta},
                        {"adjacency", spelling(c.adjacency)},
                        {"accountant", spelling(c.accountant)},
                        {"sampling_mode", spelling(c.sampling_mode)},
                        {"epsilon", nullptr}};
  const bool governed = checked.plan && !checked.plan->classes.empty();
  if (!governed) out["noise_multiplier"] = noise_multiplier(checked);
  if (checked.plan) {
    const training::Plan& plan = *checked.plan;
    const Forecast& forecast = plan.forecast;
    out["data"] = describe(checked.loaded.config.data);
    out["model"] = describe(checked.loaded.config.model);
    out["optimizer"] = describe(checked.loaded.config.optimizer);
    out["parameters"] = plan.parameters;
    out["planned_steps"] = c.target_steps ? nlohmann::json(*c.target_steps) : nlohmann::json();
    if (!plan.warnings.empty()) out["confidential"] = {{"warnings", plan.warnings}};
    if (governed)
      for (const auto& own : plan.classes) out["classes"].push_back(to_json(own));
    if (forecast.epsilon)
      out["epsilon"] = {{"lower", finite(forecast.epsilon->lower)},
                        {"upper", finite(forecast.epsilon->upper)}};
    if (forecast.unknown.empty()) {
      out["steps"] = forecast.steps;
      out["ended"] = forecast.is_ended_by_budget() ? "budget_reached" : "completed";
    } else {
      out["epsilon_unknown"] = forecast.unknown;
    }
  }
  print("{}\n", out.dump());
}

// Names in it may be a stranger's. They stand in double quotes, where YAML reads print()'s escapes.
void print_yaml(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    print("{}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The bound that an audit names, for a configuration whose hash is still unknown.
void write_ghost_bound(Options options) {
  options.settings.push_back("ghost_bound_hash=" + std::string(64, '0'));
  const std::string text =
      training::ghost_bound(load(options).config, parse_threads(""), bad_row(options.on_bad_row));
  write_atomically(options.ghost_bound, bytes_of(text));
  const std::string hash = to_hex(sha256(bytes_of(text)));
  if (options.json)
    print("{}\n", nlohmann::json{{"file", options.ghost_bound}, {"ghost_bound_hash", hash}}.dump());
  else
    print("{}\n  ghost_bound_hash: {}\n", options.ghost_bound, hash);
}

void run(const Options& options) {
  if (options.schema) {
    print_lines(config_schema());
  } else if (options.reference) {
    print_lines(config_reference());
  } else if (options.file.empty()) {
    throw Error(ErrorCode::kInvalidInput, "check",
                "give a configuration file; 'discreet init' writes one");
  } else if (!options.ghost_bound.empty()) {
    write_ghost_bound(options);
  } else if (options.resolved) {
    print_yaml(write_yaml(load(options).config));
  } else {
    (options.json ? print_json : print_text)(check(options));
  }
}

}  // namespace

void add_check(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("CONFIG", options->file, "Configuration file; - is standard input")
      .reads_file_or_dash();
  command.option("--set", "KEY=VALUE", options->settings, "Override a key of the configuration");
  command.json(options->json).excludes({"--resolved"});
  command.flag("--resolved", options->resolved,
               "Print the whole configuration with every key filled in");
  command.flag("--no-data", options->no_data,
               "Check the configuration alone, for data and a model that it does not describe");
  command.option("--seed", "SEED", options->seed, "Same as for 'train'");
  command.option("--insecure-seed", "SEED", options->insecure_seed, "Same as for 'train'");
  command.option("--on-bad-row", "WHAT", options->on_bad_row, "Same as for 'train'")
      .choices({"reject", "skip"});
  command.option("--ghost-bound", "FILE", options->ghost_bound,
                 "Write the bound of ghost clipping for an audit; ghost_bound_hash is its SHA-256");
  command.flag("--schema", options->schema, "Print the JSON schema of configurations")
      .excludes({"--json", "--resolved", "--reference", "CONFIG"});
  command.flag("--reference", options->reference, "Print every key, in Markdown")
      .excludes({"--json", "--resolved", "CONFIG"});
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
