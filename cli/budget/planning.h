#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/accounting/plan.h"
#include "discreet/report/plot.h"

namespace discreet::cli {

// What a person asks `plan`, as text until it is parsed.
struct PlanOptions {
  std::string target_epsilon, delta;
  std::string noise_multiplier;
  std::string sampling_rate, steps;
  std::string dataset_size, batch_size, epochs;
  std::string group_size;
  std::string policy, config;
  std::string plot;
  bool json = false;
};

// The other questions that `plan` answers: each computes, plots and prints.
void plan_steps(const PlanOptions& options);   // how long a run with given noise may be
void plan_policy(const PlanOptions& options);  // what a corpus policy promises in a run

// ---------------------------------------------------------------- parts of the answers

accounting::Target parse_target(const PlanOptions& options);

// One line that overwrites itself, for people only.
class ProgressLine {
 public:
  explicit ProgressLine(bool wanted);
  ProgressLine(const ProgressLine&) = delete;
  ~ProgressLine();
  void operator()(std::string_view what) const;

 private:
  bool shown_;
};

std::string show(const accounting::Interval& interval);         // "[2.9999, 3.0000]", outward
std::string counted(std::uint64_t count, const char* thing);    // "1 step", "2 steps"
std::string wrap(const std::string& text, std::size_t indent);  // at 98 columns
std::string describe_group(const accounting::Target& target);   // a line, or nothing
nlohmann::json json_of(const accounting::Interval& interval);   // an infinite end is null

// Numbers of steps that are these shares of `steps`, in whole multiples of `unit`.
std::vector<std::uint64_t> marks(std::uint64_t steps, std::uint64_t unit,
                                 const std::vector<double>& shares);

// Epsilon after parts of a Poisson run, at one noise multiplier.
struct OverRun {
  accounting::Workload workload;
  double noise_multiplier;
  accounting::Target target;

  std::vector<accounting::Spent> at(const std::vector<std::uint64_t>& steps) const;
  // At the first epoch (or step), parts of the run and its end.
  std::vector<accounting::Spent> table() const;
  // who: "60000 records, batches of 256"
  void write_plot(const std::string& file, const std::string& who) const;
};
void print_over_run(const accounting::Workload& workload,
                    const std::vector<accounting::Spent>& over_run);
nlohmann::json json_of(const accounting::Workload& workload,
                       const std::vector<accounting::Spent>& over_run);

// A plot of the size that the command writes.
report::Plot plot_of(std::string title, std::string x_label, std::string y_label);
void write_plot(const report::Plot& plot, const std::string& subtitle, const std::string& file);

}  // namespace discreet::cli
