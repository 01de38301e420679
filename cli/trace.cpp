#include "discreet/run/trace.h"

#include <fmt/core.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/print.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/base/text/rounded_text.h"
#include "discreet/report/summary.h"

namespace discreet::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string run;
  bool json = false, csv = false;
};

std::string text_of(const json& line, const char* key) {
  const auto at = line.find(key);
  if (at == line.end() || at->is_null()) return "";
  if (at->is_string()) return at->get<std::string>();
  if (!at->is_number_float()) return at->dump();
  const double value = at->get<double>();
  // The one column that is a bound.
  return std::string_view(key) == "cumulative_epsilon_after" ? brief_up(value)
                                                             : fmt::format("{:.5g}", value);
}

struct Column {
  const char* key;
  const char* title;
};
constexpr Column kColumns[] = {{"t", "step"},
                               {"cumulative_epsilon_after", "epsilon"},
                               {"noise_scale_sigma", "sigma"},
                               {"clip_fraction", "clipped"},
                               {"norm_p50", "norm p50"},
                               {"norm_p95", "norm p95"},
                               {"gradient_snr", "snr"},
                               {"train_loss", "loss"},
                               {"test_accuracy", "accuracy"}};

// `iter` lines, each with the evaluation that followed it.
std::vector<json> steps_of(const std::vector<run::TraceLine>& lines) {
  std::vector<json> out;
  for (const run::TraceLine& line : lines) {
    json object = read_json(line.text);
    if (line.kind == "iter") {
      out.push_back(std::move(object));
    } else if (line.kind == "evaluation" && !out.empty()) {
      for (const char* key :
           {"epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy"})
        out.back()[key] = object.at(key);
    }
  }
  return out;
}

void print_table(const std::vector<run::TraceLine>& lines) {
  print("confidential: these values depend on the data\n");
  for (const Column& column : kColumns) print("{:>12}", column.title);
  print("\n");
  for (const json& step : steps_of(lines)) {
    for (const Column& column : kColumns) print("{:>12}", text_of(step, column.key));
    print("\n");
  }
  for (const run::TraceLine& line : lines) {
    const json object = read_json(line.text);
    if (line.kind == "resumed")
      print("resumed at step {} after {} were released: {}\n", text_of(object, "t"),
            text_of(object, "released"), text_of(object, "differs"));
    if (line.kind == "failure")
      print("failed at step {}: {}: {}\n", text_of(object, "t"), text_of(object, "failure_code"),
            text_of(object, "diagnostics"));
  }
}

// The claim as it is recomputed, not as the last line says it.
void print_claim(const report::RunSummary& run) {
  const report::Declared& declared = run.declared;
  print("{} after {} steps: {}\n{}\n", report::to_string(declared.ended), run.observed.steps,
        declared.not_private.empty()
            ? fmt::format("epsilon ≤ {} at delta {}, {}", brief_up(declared.claim.upper),
                          declared.claim.delta, accounting::to_string(declared.claim.adjacency))
            : "nothing is claimed",
        report::seal_sentence(declared));
}

// Scalars of every step, in the order of their names; what holds no comma needs no quotes.
void print_csv(const std::vector<run::TraceLine>& lines) {
  const std::vector<json> steps = steps_of(lines);
  std::map<std::string, bool> columns;
  for (const json& step : steps)
    for (const auto& [key, value] : step.items())
      if (!value.is_structured() && key != "prev" && key != "kind") columns[key] = true;
  const char* separator = "";
  for (const auto& [key, used] : columns) {
    print("{}{}", separator, key);
    separator = ",";
  }
  print("\n");
  for (const json& step : steps) {
    separator = "";
    for (const auto& [key, used] : columns) {
      const json value = step.value(key, json());
      print("{}{}", separator,
            value.is_null()     ? ""
            : value.is_string() ? value.get<std::string>()
                                : value.dump());
      separator = ",";
    }
    print("\n");
  }
}

void print_json(const std::vector<run::TraceLine>& lines) {
  const char* separator = "[";
  for (const run::TraceLine& line : lines) {
    print("{}{}", separator, line.text);
    separator = ",\n";
  }
  print("]\n");
}

}  // namespace

void add_trace(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("RUN", options->run, "Directory of the run")
      .required()
      .reads_folder("trace.jsonl");
  command.json(options->json);
  command.flag("--csv", options->csv, "Print the steps as CSV").excludes({"--json"});
  command.action([options] {
    // Verify before printing: every output format rejects a run that does not verify.
    const report::RunSummary run = report::summarize(options->run);
    if (options->json) return print_json(run.trace);
    if (options->csv) return print_csv(run.trace);
    print_table(run.trace);
    print_claim(run);
  });
}

}  // namespace discreet::cli
