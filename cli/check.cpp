#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/numbers.h"
#include "cli/sampling.h"
#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/config_document.h"
#include "discreet/mechanism/config_read.h"
#include "discreet/mechanism/config_table.h"
#include "discreet/mechanism/prevalidation.h"
#include "discreet/training/open.h"
#include "discreet/training/private_bounds.h"

namespace discreet::cli {
namespace {

using namespace mechanism;

struct Options {
  std::string file;
  std::vector<std::string> settings;
  bool json = false;
  bool schema = false;
  bool reference = false;
  bool resolved = false;
};

struct Checked {
  LoadedConfig loaded;
  std::string hash;
  std::vector<std::string> not_private;
  std::optional<accounting::Interval> epsilon;  // of the whole planned run
  std::string unknown;                          // why there is none

  const DpConfig& privacy() const { return loaded.config.privacy; }
};

Checked check(const Options& options) {
  Checked out{
      load_config(read_config_file(options.file), options.file, options.settings), {}, {}, {}, {}};
  const DpConfig& c = out.privacy();
  const DataConfig& data = out.loaded.config.data;
  training::check_data(data);
  out.hash = to_hex(config_hash(out.loaded.config));
  out.not_private = not_private_reasons(c);
  const PlannedRun run = planned_run(c);
  out.unknown = run.unknown;
  if (run.unknown.empty()) {
    const auto accountant =
        accounting::make_accountant(spelling(c.accountant), {c.log_space_accounting});
    try {
      if (!data.private_bounds.empty()) {
        accountant->compose(training::private_bounds_event(data.private_bounds_noise, c.adjacency));
      }
      for (const auto& [event, count] : run.events) accountant->compose(event, count);
      out.epsilon = accountant->epsilon(c.target_delta).epsilon;
    } catch (const Error& error) {
      out.unknown = error.sentence();
    }
  }
  if (out.epsilon && out.epsilon->upper > c.target_epsilon) {
    out.loaded.notes.push_back(
        fmt::format("{} steps would spend epsilon {}, more than target_epsilon {}: the run ends "
                    "earlier; raise noise_multiplier, or see 'discreet plan'",
                    *c.target_steps, brief_up(out.epsilon->upper), c.target_epsilon));
  }
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

void print_text(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  fmt::print("OK\n  hash           {}\n", checked.hash);
  fmt::print("  data           {}\n  model          {}\n  optimizer      {}\n",
             describe(checked.loaded.config.data), describe(checked.loaded.config.model),
             describe(checked.loaded.config.optimizer));
  if (c.enabled) {
    fmt::print("  sampler        {}: {}\n", spelling(c.sampling_mode),
               describe_sampling(sampling_of(c)));
    fmt::print("  clipping       {}, norm {}\n", spelling(c.clip_strategy),
               c.clip_norm_adaptive ? fmt::format("adaptive from {}", c.clip_norm)
                                    : fmt::format("{}", c.clip_norm));
    fmt::print("  noise          {} at multiplier {}, mode {}\n", spelling(c.noise_family),
               c.noise_multiplier, spelling(c.mode));
    fmt::print("  budget         epsilon {} at delta {}, {}, by {}\n", c.target_epsilon,
               c.target_delta, spelling(c.adjacency), spelling(c.accountant));
    if (checked.epsilon) {
      fmt::print("  planned run    {} steps spend epsilon ≤ {} at delta {}, {}\n", *c.target_steps,
                 round_up(checked.epsilon->upper), c.target_delta, spelling(c.adjacency));
    } else {
      fmt::print("  planned run    epsilon not known in advance: {}\n", checked.unknown);
    }
  }
  for (const std::string& reason : checked.not_private) fmt::print("  not_private    {}\n", reason);
  for (const std::string& note : checked.loaded.notes) fmt::print("  note           {}\n", note);
}

// Numbers that JSON cannot hold are null.
nlohmann::json finite(double x) { return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(); }

void print_json(const Checked& checked) {
  const DpConfig& c = checked.privacy();
  nlohmann::json out = {{"ok", true},
                        {"hash", checked.hash},
                        {"enabled", c.enabled},
                        {"not_private", checked.not_private},
                        {"notes", checked.loaded.notes},
                        {"target_epsilon", c.target_epsilon},
                        {"delta", c.target_delta},
                        {"adjacency", spelling(c.adjacency)},
                        {"accountant", spelling(c.accountant)},
                        {"sampling_mode", spelling(c.sampling_mode)},
                        {"noise_multiplier", c.noise_multiplier},
                        {"data", describe(checked.loaded.config.data)},
                        {"model", describe(checked.loaded.config.model)},
                        {"optimizer", describe(checked.loaded.config.optimizer)},
                        {"epsilon", nullptr}};
  if (checked.epsilon) {
    out["epsilon"] = {{"lower", finite(checked.epsilon->lower)},
                      {"upper", finite(checked.epsilon->upper)}};
    out["steps"] = *c.target_steps;
  } else {
    out["epsilon_unknown"] = checked.unknown;
  }
  fmt::print("{}\n", out.dump());
}

void run(const Options& options) {
  if (options.schema) {
    fmt::print("{}", config_schema());
  } else if (options.reference) {
    fmt::print("{}", config_reference());
  } else if (options.file.empty()) {
    throw Error(ErrorCode::kInvalidInput, "check",
                "give a configuration file; 'discreet init' writes one");
  } else {
    const Checked checked = check(options);
    if (options.resolved) {
      fmt::print("{}", write_yaml(checked.loaded.config));
    } else {
      (options.json ? print_json : print_text)(checked);
    }
  }
}

}  // namespace

void add_check(CLI::App& command, int&) {
  auto options = std::make_shared<Options>();
  CLI::Option* file =
      command.add_option("CONFIG", options->file, "Configuration file; - is standard input");
  command.add_option("--set", options->settings, "key=value, instead of what the file says")
      ->allow_extra_args(false)
      ->take_all();
  CLI::Option* json = command.add_flag("--json", options->json, "Print one JSON object");
  CLI::Option* resolved = command.add_flag(
      "--resolved", options->resolved, "Print the whole configuration with every key filled in");
  CLI::Option* schema =
      command.add_flag("--schema", options->schema, "Print the JSON schema of configurations");
  CLI::Option* reference =
      command.add_flag("--reference", options->reference, "Print every key, in Markdown");
  resolved->excludes(json);
  schema->excludes(json)->excludes(resolved)->excludes(reference)->excludes(file);
  reference->excludes(json)->excludes(resolved)->excludes(file);
  command.callback([options] { run(*options); });
}

}  // namespace discreet::cli
