#include "cli/training_run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/accounting/event.h"
#include "discreet/base/error.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/report/html.h"

namespace discreet::cli {
namespace {

using training::Ended;
using training::Progress;
using training::RunResult;

std::atomic<bool> stop_asked = false;

// The first Ctrl-C ends the run after its step; the second ends the process.
void listen_for_stop() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

std::string duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f}%", 100 * *fraction) : "-";
}

// On a terminal a bar that renews itself, else a line per epoch; both on stderr.
class Display {
 public:
  explicit Display(bool private_run) : private_(private_run), terminal_(::isatty(2) == 1) {}

  void show(const Progress& p) {
    if (p.evaluation != nullptr) last_ = *p.evaluation;
    if (terminal_)
      bar(p);
    else if (p.evaluation != nullptr)
      line(p);
  }
  void end() const {
    if (terminal_ && drawn_) print(stderr, "\r\033[K");
  }

 private:
  std::string spent(const Progress& p) const {
    return private_ ? fmt::format("  ε ≤ {}", brief_up(p.epsilon)) : std::string();
  }

  void bar(const Progress& p) {
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && now - drawn_at_ < std::chrono::milliseconds(100) && p.step != p.planned) return;
    drawn_ = true;
    drawn_at_ = now;
    std::string out = "\r\033[K";
    if (p.planned) {
      constexpr std::uint64_t kWidth = 24;
      const std::uint64_t full = kWidth * p.step / *p.planned;
      for (std::uint64_t i = 0; i < kWidth; ++i) out += i < full ? "━" : "┄";
      out += fmt::format(" {}/{}", p.step, *p.planned);
    } else {
      out += fmt::format("step {}", p.step);
    }
    out += fmt::format("{}  {:.0f} steps/s", spent(p), p.steps_per_second);
    if (p.seconds_left) out += fmt::format("  {} left", duration(*p.seconds_left));
    if (last_.train_loss) out += fmt::format("  loss {:.4f}", *last_.train_loss);
    if (last_.test_accuracy) out += fmt::format("  {} held-out", percent(last_.test_accuracy));
    std::fputs(out.c_str(), stderr);
    std::fflush(stderr);
  }

  void line(const Progress& p) const {
    const training::Evaluation& e = *p.evaluation;
    print(stderr, "epoch {}  step {}{}  loss {}  train {}  held-out {}  {:.0f} steps/s\n", e.epoch,
          e.t, spent(p), e.train_loss ? fmt::format("{:.4f}", *e.train_loss) : "-",
          percent(e.train_accuracy), percent(e.test_accuracy), p.steps_per_second);
  }

  bool private_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point drawn_at_;
  training::Evaluation last_;
};

// Of more classes, only the accuracy is printed; --json and the report have each.
constexpr std::size_t kClassesShown = 4;

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    print("  warning    {} (confidential: it depends on the records)\n", warning);
}

void print_held_out(const RunResult& r) {
  if (!r.held_out) return;
  const training::HeldOut& held_out = *r.held_out;
  if (r.accuracy && held_out.baseline())
    print("  accuracy   {} ({} for always '{}') of held-out records\n", percent(r.accuracy),
          percent(held_out.baseline()), held_out.majority()->name);
  if (held_out.rmse)
    print("  error      {:.4g} root mean square{} on held-out records\n", *held_out.rmse,
          held_out.r2 ? fmt::format(", R² {:.3f}", *held_out.r2) : "");
  if (held_out.classes.size() > kClassesShown) return;
  for (const training::HeldOut::Class& own : held_out.classes)
    print("  class      '{}': recall {}, precision {}\n", own.name, percent(own.recall()),
          percent(own.precision()));
}

constexpr const char* kHeldOut = "held-out records have no guarantee";
constexpr const char* kTuning = "hyper-parameters chosen on this data are not covered";

}  // namespace

nlohmann::json to_json(const Outcome& outcome) {
  const RunResult& r = outcome.result;
  const auto number = [](const auto& x) { return x ? nlohmann::json(*x) : nlohmann::json(); };
  nlohmann::json out = {{"run", r.directory.string()},
                        {"epsilon", nullptr},
                        {"delta", r.delta},
                        {"adjacency", accounting::to_string(r.adjacency)},
                        {"accuracy", number(r.accuracy)},
                        {"accuracy_note", kHeldOut},
                        {"loss", number(r.loss)},
                        {"steps", r.steps},
                        {"planned_steps", number(r.planned)},
                        {"seconds", r.seconds},
                        {"ended", training::to_string(r.ended)},
                        {"not_private", r.not_private},
                        {"notes", r.notes}};
  if (r.released)
    out["released"] = {{"clip_fraction", r.released->clip_fraction},
                       {"group_clip_fraction", r.released->group_clip_fraction}};
  if (!r.zeroed.empty()) out["confidential"]["warning"] = r.zeroed;
  if (!r.warnings.empty()) out["confidential"]["warnings"] = r.warnings;
  if (r.skipped_rows != 0) out["confidential"]["skipped_rows"] = r.skipped_rows;
  if (r.held_out)
    out["confidential"]["held_out"] = read_json(discreet::to_json(r.held_out->to_cbor()));
  if (r.epsilon) out["epsilon"] = {{"lower", r.epsilon->lower}, {"upper", r.epsilon->upper}};
  return out;
}

void print_text(const Outcome& outcome, const std::string& again) {
  const auto& [r, report] = outcome;
  const std::string run = r.directory.string();
  print("{}{}\n", r.not_private.empty() ? "A private model" : "A model that is NOT PRIVATE",
        r.is_noise_only ? " that holds noise only" : "");
  print("  model      {}/model.safetensors\n", run);
  if (report) print("  report     {}\n", *report);
  if (r.epsilon && !r.not_private.empty())
    print("  epsilon    none is claimed; under secret randomness ≤ {} at delta {}, {}\n",
          round_up(r.epsilon->upper), r.delta, accounting::to_string(r.adjacency));
  else if (r.epsilon)
    print("  epsilon    ≤ {} (and ≥ {}) at delta {}, {}\n", round_up(r.epsilon->upper),
          round_down(r.epsilon->lower), r.delta, accounting::to_string(r.adjacency));
  if (!r.accuracy && r.loss) print("  loss       {:.6f} on held-out records\n", *r.loss);
  print_held_out(r);
  print("  steps      {}{} in {:.1f} s\n", r.steps,
        r.planned ? fmt::format(" of {}", *r.planned) : "", r.seconds);
  switch (r.ended) {
    case Ended::kCompleted: break;
    case Ended::kBudgetReached:
      print("  ended      budget reached: the next step would have exceeded target_epsilon\n");
      break;
    case Ended::kInterrupted:
      print("  ended      interrupted; resume with: {} --resume\n", again);
      if (r.epsilon)
        print(
            "             epsilon is that of the planned steps or the budget: who stops a run "
            "may have seen its metrics\n");
      break;
  }
  for (const std::string& reason : r.not_private) print("  not_private  {}\n", reason);
  if (!r.zeroed.empty()) print_warnings({r.zeroed});
  print_warnings(r.warnings);
  for (const std::string& note : r.notes) print("  note       {}\n", note);
  if (r.released)
    print("  released   clip fraction {:.4f} in the last step, noised inside epsilon\n",
          r.released->clip_fraction);
  if (r.accuracy || r.loss) print("  note       {}; {}\n", kHeldOut, kTuning);
}

std::shared_ptr<TrainingOptions> add_training_options(Command& command, const char* out) {
  auto options = std::make_shared<TrainingOptions>();
  options->out = out;
  command.option("--out", "DIR", options->out, "Directory of the run").writes_folder();
  command.flag("--resume", options->resume, "Continue the run in that directory");
  command.option("--set", "KEY=VALUE", options->settings, "Override a key of the configuration");
  command.option("--threads", "N", options->threads,
                 "Threads, which do not change the result; one per processor if not given");
  command.option("--seed", "SEED", options->seed,
                 "Seed of public randomness only: initialisation, feature maps, held-out records");
  command.option("--insecure-seed", "SEED", options->insecure_seed,
                 "Seed of noise and sampling too, for tests: stamps the run not_private");
  command
      .option("--on-bad-row", "WHAT", options->on_bad_row,
              "Reject a file with an unreadable row, or skip such rows and count them")
      .choices({"reject", "skip"});
  command.json(options->json);
  return options;
}

std::vector<std::string> training_settings(std::vector<std::string> settings,
                                           const std::string& seed,
                                           const std::string& insecure_seed) {
  if (!seed.empty()) settings.push_back(fmt::format("seed={}", random::parse_seed(seed)));
  if (!insecure_seed.empty()) {
    settings.push_back(fmt::format("seed={}", random::parse_seed(insecure_seed)));
    settings.emplace_back("secure=false");
  }
  return settings;
}

data::BadRow bad_row(const std::string& text) {
  return text == "skip" ? data::BadRow::kSkip : data::BadRow::kRefuse;
}

Outcome train_and_report(const TrainingOptions& options, std::string_view yaml,
                         std::string_view name, const std::filesystem::path& relative_to,
                         const std::function<void(const Progress&)>& each_step) {
  const std::filesystem::path out = options.out;
  const LoadedConfig loaded = training::load_training_config(
      yaml, name, training_settings(options.settings, options.seed, options.insecure_seed),
      relative_to, options.resume ? &out : nullptr);
  training::TrainOptions train;
  train.directory = options.out;
  train.resume = options.resume;
  train.threads = parse_threads(options.threads);
  train.on_bad_row = bad_row(options.on_bad_row);
  train.stop = &stop_asked;
  Display display(loaded.config.privacy.enabled);
  train.progress = [&](const Progress& progress) {
    display.show(progress);
    if (each_step) each_step(progress);
  };
  listen_for_stop();
  RunResult result;
  try {
    result = training::train(loaded.config, train);
  } catch (...) {
    display.end();
    throw;
  }
  display.end();
  // The page never fails a run that is done.
  std::optional<std::string> report = report::default_report(result.directory, false).string();
  try {
    report::write_report(result.directory, false, *report);
  } catch (const Error& error) {
    result.notes.push_back(fmt::format("no report: {}", error.sentence()));
    report.reset();
  }
  result.notes.insert(result.notes.begin(), loaded.notes.begin(), loaded.notes.end());
  return {std::move(result), std::move(report)};
}

void run_training(const TrainingOptions& options, std::string_view yaml, std::string_view name,
                  const std::filesystem::path& relative_to, const std::string& again) {
  const Outcome outcome = train_and_report(options, yaml, name, relative_to);
  if (options.json)
    print("{}\n", to_json(outcome).dump());
  else
    print_text(outcome, again);
}

}  // namespace discreet::cli
