#include "cli/budget/planning.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {

using namespace accounting;
using nlohmann::json;

Target parse_target(const PlanOptions& options) {
  const auto need = [](const std::string& text, const char* option, const char* sentence) {
    if (text.empty()) throw Error(ErrorCode::kInvalidDpConfig, option, sentence);
    return parse_number(option, text);
  };
  Target out{need(options.target_epsilon, "--target-epsilon", "give --target-epsilon"),
             need(options.delta, "--delta", "give --delta, the failure probability")};
  if (!options.group_size.empty()) out.group = parse_group_size("--group-size", options.group_size);
  return out;
}

ProgressLine::ProgressLine(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) == 1) {}
ProgressLine::~ProgressLine() {
  if (shown_) print(stderr, "\r\x1b[K");
}
void ProgressLine::operator()(std::string_view what) const {
  if (!shown_) return;
  print(stderr, "\r\x1b[K  {} ...", what);
  std::fflush(stderr);
}

std::string show(const Interval& interval) {
  return fmt::format("[{}, {}]", brief_down(interval.lower), brief_up(interval.upper));
}

std::string counted(std::uint64_t count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

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

std::string describe_group(const Target& target) {
  if (target.group == 1) return "";
  return fmt::format("  for groups of up to {} records: all present against all absent\n",
                     target.group);
}

json json_of(const Interval& interval) {
  // JSON has no infinity.
  json out = {{"lower", interval.lower}, {"upper", nullptr}};
  if (std::isfinite(interval.upper)) out["upper"] = interval.upper;
  return out;
}

std::vector<std::uint64_t> marks(std::uint64_t steps, std::uint64_t unit,
                                 const std::vector<double>& shares) {
  const double units = std::floor(double(steps) / double(unit));
  std::vector<std::uint64_t> out;
  out.reserve(shares.size());
  for (const double share : shares) {
    out.push_back(unit * static_cast<std::uint64_t>(std::max(1.0, std::round(share * units))));
  }
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

namespace {

// The steps that a table or a plot counts as one.
double unit_of(const Workload& workload) {
  return workload.sizes ? double(workload.sizes->batches) : 1;
}

}  // namespace

std::vector<Spent> OverRun::at(const std::vector<std::uint64_t>& steps) const {
  return epsilon_over_run(workload, noise_multiplier, target, steps);
}

std::vector<Spent> OverRun::table() const {
  const auto epoch = static_cast<std::uint64_t>(unit_of(workload));
  const std::uint64_t unit = workload.steps < epoch ? 1 : epoch;
  // Six columns fit: the end, where it is within an epoch, is one of them.
  if (workload.steps % unit == 0) return at(marks(workload.steps, unit, {0, .1, .25, .5, .75, 1}));
  std::vector<std::uint64_t> steps = marks(workload.steps, unit, {0, .25, .5, .75, 1});
  steps.push_back(workload.steps);
  return at(steps);
}

void OverRun::write_plot(const std::string& file, const std::string& who) const {
  std::vector<double> shares;
  // Epsilon rises steeply at first: the square spreads the points.
  for (int i = 1; i <= 32; ++i) shares.push_back(i * i / 1024.0);
  report::Plot plot =
      plot_of(fmt::format("ε over the run at noise multiplier {}", brief_up(noise_multiplier)),
              workload.sizes ? "epochs" : "steps", "ε (add_remove)");
  plot.levels = {{target.epsilon, fmt::format("target ε = {}", target.epsilon), true}};
  report::Plot::Curve curve{"certified upper bound of a run that ends there", {{0, 0}}};
  for (const Spent& each : at(marks(workload.steps, 1, shares)))
    curve.points.push_back({double(each.steps) / unit_of(workload), each.epsilon.upper});
  plot.curves = {std::move(curve)};
  cli::write_plot(plot, fmt::format("{}, Poisson sampling, δ = {}", who, target.delta), file);
}

void print_over_run(const Workload& workload, const std::vector<Spent>& over_run) {
  std::string at, spent;
  for (const Spent& each : over_run) {
    at += fmt::format(" {:>12.7g}", double(each.steps) / unit_of(workload));
    spent += fmt::format("{:>13}", brief_up(each.epsilon.upper));
  }
  print("\nepsilon of a Poisson run planned to end earlier, at that noise, add_remove\n");
  print("  {:<9}{}\n  {:<9}{}\n", workload.sizes ? "epochs" : "steps", at, "epsilon ≤", spent);
}

json json_of(const Workload& workload, const std::vector<Spent>& over_run) {
  json out = json::array();
  for (const Spent& each : over_run) {
    json row = {{"steps", each.steps}, {"epsilon", json_of(each.epsilon)}};
    if (workload.sizes && each.steps % workload.sizes->batches == 0)
      row["epochs"] = each.steps / workload.sizes->batches;
    out.push_back(std::move(row));
  }
  return out;
}

report::Plot plot_of(std::string title, std::string x_label, std::string y_label) {
  report::Plot plot;
  plot.width = 720;
  plot.height = 440;
  plot.title = std::move(title);
  plot.x_label = std::move(x_label);
  plot.y_label = std::move(y_label);
  return plot;
}

void write_plot(const report::Plot& plot, const std::string& subtitle, const std::string& file) {
  write_atomically(file, bytes_of(svg_file(plot, subtitle)));
}

}  // namespace discreet::cli
