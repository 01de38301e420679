#include "cli/budget/account_runs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/budget/planning.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/accounting/group_privacy.h"
#include "discreet/base/error.h"
#include "discreet/report/summary.h"

namespace discreet::cli {
namespace {

using namespace accounting;
using nlohmann::json;

[[noreturn]] void refuse(const std::string& run, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, "account", fmt::format("{}: {}", run, sentence));
}

struct CountedRun {
  std::string path, header;
  report::Declared declared;
  bool by_claim = false;  // the events are only the guarantee that its claim is
  std::vector<RepeatedEvent> events = {};
  double distance = 0;  // of the releases from the events, in total variation
  double alone = 0;     // epsilon at the delta of the total

  const report::Claim& claim() const { return declared.claim; }
  void count_claim() {
    by_claim = true;
    distance = 0;
    events = {{Event(Guarantee{claim().upper, claim().delta}, NoSampling{}, claim().adjacency), 1}};
  }
};

struct Total {
  std::vector<CountedRun> runs;
  double delta;
  std::uint64_t group;
  Certified epsilon;
};

report::RunSummary verified(const std::string& path) try {
  return report::summarize(path);
} catch (const Error& error) {
  throw Error(error.code(), error.op(), fmt::format("{}: {}", path, error.sentence()));
}

CountedRun read_run(const std::string& path) {
  const report::RunSummary summary = verified(path);
  CountedRun out{path, summary.trace.at(0).text, summary.declared};
  const report::Declared& d = out.declared;
  if (!d.not_private.empty())
    refuse(path, fmt::format("the run promises nothing ({}); leave it out, and state it beside the "
                             "epsilon of the others",
                             d.not_private.front()));
  if (!d.sealed)
    refuse(path, fmt::format("{}; its events cannot be trusted", report::seal_sentence(d)));
  out.events = d.claim.events;
  out.distance = d.claim.distance;
  if (out.events.empty()) out.count_claim();
  return out;
}

// By the first line of their traces, which contains a commitment to the data under the run's key.
void require_distinct(const std::vector<CountedRun>& runs) {
  std::map<std::string, std::string> seen;
  for (const CountedRun& each : runs) {
    const auto [at, is_new] = seen.try_emplace(each.header, each.path);
    if (!is_new)
      refuse(each.path, fmt::format("this is the same run as {}; give each run once", at->second));
  }
}

void require_one_adjacency(const std::vector<CountedRun>& runs) {
  for (const CountedRun& each : runs)
    if (each.claim().adjacency != runs.front().claim().adjacency)
      refuse(
          each.path,
          fmt::format("its epsilon holds under {}, and that of {} under {}; no proof composes the "
                      "two, so account for them separately",
                      to_string(each.claim().adjacency), runs.front().path,
                      to_string(runs.front().claim().adjacency)));
}

bool composes(const std::vector<RepeatedEvent>& events) {
  try {
    reduce(events);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A sampler whose steps cannot be composed with those of others counts as its claim.
void make_composable(std::vector<CountedRun>& runs) {
  if (runs.size() == 1) return;
  for (CountedRun& each : runs)
    if (!composes(each.events)) each.count_claim();
}

Certified compose(std::span<const CountedRun> runs, std::uint64_t group, double delta) {
  std::vector<RepeatedEvent> events;
  double distance = 0, claimed = 0;
  for (const CountedRun& each : runs) {
    events.insert(events.end(), each.events.begin(), each.events.end());
    distance += each.distance * (1 + 1e-15);
    if (each.by_claim) claimed += each.claim().delta;
  }
  if (claimed >= delta)
    throw Error(ErrorCode::kInvalidDpConfig, "--delta",
                fmt::format("delta is {}, but the runs that count by their claim use up {}; give "
                            "--delta above that",
                            delta, claimed));
  return group_epsilon(events, group, delta, distance);
}

Certified together(std::span<const CountedRun> runs, std::uint64_t group, double delta) {
  const CountedRun& first = runs.front();
  const bool has_claimed = runs.size() == 1 && group == 1 && delta >= first.claim().delta;
  if (!has_claimed) return compose(runs, group, delta);
  const Certified claimed{
      {first.claim().lower.value_or(0), first.claim().upper}, Path::kBracket, Direction::kRemove};
  if (first.by_claim) return claimed;
  const Certified composed = compose(runs, group, delta);
  return composed.value.upper <= claimed.value.upper ? composed : claimed;
}

Total find_total(const AccountRunsOptions& options) {
  Total out{{}, 0, 1, {}};
  for (const std::string& path : options.runs) out.runs.push_back(read_run(path));
  require_distinct(out.runs);
  require_one_adjacency(out.runs);
  make_composable(out.runs);
  if (!options.group_size.empty()) out.group = parse_group_size("--group-size", options.group_size);
  for (const CountedRun& each : out.runs) out.delta = std::max(out.delta, each.claim().delta);
  if (!options.delta.empty()) out.delta = parse_delta("--delta", options.delta);
  // The total first: its errors say what is wrong with all of them.
  out.epsilon = together(out.runs, out.group, out.delta);
  for (CountedRun& each : out.runs)
    each.alone = together({&each, 1}, out.group, out.delta).value.upper;
  return out;
}

std::string covers(const CountedRun& run) {
  if (run.by_claim) return "its claim";
  if (run.declared.ended == report::Ended::kInterrupted)
    return fmt::format("planned {}", counted(*run.declared.planned_steps, "step"));
  return counted(run.declared.steps.value_or(0), "step");
}

void print_text(const Total& total) {
  print("epsilon ≤ {} at delta = {}, {}, for {} together{}\n", round_up(total.epsilon.value.upper),
        total.delta, to_string(total.runs.front().claim().adjacency),
        counted(total.runs.size(), "run"),
        total.group > 1 ? fmt::format(" and groups of up to {} records", total.group) : "");
  std::size_t width = 10;
  for (const CountedRun& each : total.runs) width = std::max(width, each.path.size() + 2);
  print("  {:<{}}{:<16}{:<22}{:>12} {:<12}{:>12}\n", "run", width, "ended", "counted", "claim ε ≤",
        "at delta", "alone ε ≤");
  for (const CountedRun& each : total.runs)
    print("  {:<{}}{:<16}{:<22}{:>12} {:<12}{:>12}\n", each.path, width,
          report::to_string(each.declared.ended), covers(each), brief_up(each.claim().upper),
          fmt::format("{}", each.claim().delta), brief_up(each.alone));
  print("  {:<{}}{:<16}{:<22}{:>12} {:<12}{:>12}\n", "together", width, "", "", "", "",
        brief_up(total.epsilon.value.upper));
  print(
      "  in words       anyone who sees the results of all these runs learns at most this of {}\n"
      "                 that may be in the data of each of them.\n"
      "  provided that  the runs, their noise and their length were chosen without looking at "
      "what\n"
      "                 other runs released. Runs on the same people that are not listed add to "
      "it.\n",
      total.group > 1 ? fmt::format("up to {} records", total.group) : "a record");
}

void print_json(const Total& total) {
  json out = {
      {"accountant", "pld"},       {"adjacency", to_string(total.runs.front().claim().adjacency)},
      {"delta", total.delta},      {"epsilon", json_of(total.epsilon.value)},
      {"group_size", total.group}, {"runs", json::array()}};
  for (const CountedRun& each : total.runs) {
    json row = {{"run", each.path},
                {"ended", report::to_string(each.declared.ended)},
                {"counted", each.by_claim ? "claim" : "events"},
                {"claim", {{"epsilon", each.claim().upper}, {"delta", each.claim().delta}}},
                {"epsilon_alone", each.alone},
                {"steps", nullptr}};
    const bool planned = each.declared.ended == report::Ended::kInterrupted;
    const auto steps = planned ? each.declared.planned_steps : each.declared.steps;
    if (!each.by_claim && steps) row["steps"] = *steps;
    out["runs"].push_back(std::move(row));
  }
  print("{}\n", out.dump(-1, ' ', false, json::error_handler_t::replace));
}

void write_growth(const Total& total, const std::string& file) {
  report::Plot plot =
      plot_of("ε of the runs together", "runs",
              fmt::format("ε ({})", to_string(total.runs.front().claim().adjacency)));
  report::Plot::Curve curve{"certified upper bound of the first runs", {{0, 0}}};
  for (std::size_t i = 1; i <= total.runs.size(); ++i) {
    const double epsilon =
        i == total.runs.size()
            ? total.epsilon.value.upper
            : together(std::span(total.runs).first(i), total.group, total.delta).value.upper;
    curve.points.push_back({double(i), std::max(epsilon, curve.points.back().y)});
  }
  plot.curves = {std::move(curve)};
  write_plot(plot, fmt::format("in the order given, δ = {}", total.delta), file);
}

}  // namespace

void account_runs(const AccountRunsOptions& options) {
  const Total total = find_total(options);
  if (!options.plot.empty()) write_growth(total, options.plot);
  (options.json ? print_json : print_text)(total);
}

}  // namespace discreet::cli
