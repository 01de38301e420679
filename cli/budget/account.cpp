#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/budget/account_runs.h"
#include "cli/budget/planning.h"
#include "cli/budget/sampling.h"
#include "cli/budget/schedule.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/accounting/accountant.h"
#include "discreet/accounting/group_privacy.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using accounting::Accountant;
using accounting::Adjacency;
using accounting::Certified;
using accounting::Event;
using accounting::Gaussian;
using accounting::Interval;
using accounting::PldAccountant;
using accounting::Poisson;
using accounting::Sampling;

struct Options {
  SamplingOptions who;
  std::vector<std::string> runs;
  std::string noise_multiplier, delta, epsilon, schedule, group_size, plot;
  std::string accountant = "pld";
  bool verify = false;
  bool json = false;

  std::uint64_t group() const {
    return group_size.empty() ? 1 : parse_group_size("--group-size", group_size);
  }
  bool asks_for_epsilon() const { return !delta.empty(); }
  double given() const {
    return asks_for_epsilon() ? parse_number("--delta", delta) : parse_number("--epsilon", epsilon);
  }
};

struct Answer {
  Interval value;
  std::optional<Certified> certificate;  // of the accountant pld
  std::optional<double> not_a_bound;     // the central limit number of gdp
};

// What is accounted for; the sampler is none when a schedule was read.
struct Run {
  Adjacency adjacency;
  std::optional<ParsedSampling> who;
  std::uint64_t steps = 0;
  Answer answer;
};

[[noreturn]] void refuse(const char* option, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, option, sentence);
}

// pld keeps its certificate; the others answer through the common interface.
template <class Feed>
Answer ask(const Options& options, Adjacency adjacency, const Feed& feed) {
  const double given = options.given();
  if (!options.group_size.empty()) {
    if (options.accountant != "pld")
      refuse("--group-size",
             fmt::format("the accountant {} certifies no group epsilon; use --accountant pld",
                         options.accountant));
    if (options.verify)
      refuse("--verify", "--verify compares the paths of one record; leave out --group-size");
    std::vector<accounting::RepeatedEvent> events;
    feed([&](const Event& event, std::uint64_t count) { events.push_back({event, count}); });
    const Certified found = options.asks_for_epsilon()
                                ? accounting::group_epsilon(events, options.group(), given)
                                : accounting::group_delta(events, options.group(), given);
    return {found.value, found, std::nullopt};
  }
  if (options.accountant == "pld") {
    PldAccountant pld(adjacency);
    feed([&](const Event& event, std::uint64_t count) { pld.add(event, count); });
    const Certified found = !options.asks_for_epsilon() ? pld.delta(given)
                            : options.verify            ? pld.verify(given)
                                                        : pld.epsilon(given);
    return {found.value, found, std::nullopt};
  }
  if (options.verify)
    refuse("--verify", "--verify compares independent paths, which only the accountant pld has");
  const std::unique_ptr<Accountant> other = accounting::make_accountant(options.accountant);
  feed([&](const Event& event, std::uint64_t count) { other->compose(event, count); });
  if (!options.asks_for_epsilon()) return {other->delta(given), std::nullopt, std::nullopt};
  const accounting::EpsilonBound bound = other->epsilon(given);
  Answer answer{bound.epsilon, std::nullopt, std::nullopt};
  if (bound.approximation) answer.not_a_bound = bound.approximation->not_a_bound();
  return answer;
}

Answer ask_steps(const Options& options, const ParsedSampling& who, Adjacency adjacency,
                 std::uint64_t events) {
  const Gaussian noise{parse_number("--noise-multiplier", options.noise_multiplier)};
  const Event event(noise, who.sampling, adjacency);
  return ask(options, adjacency, [&](const auto& take) {
    if (events > 0) take(event, events);
  });
}

Run account(const Options& options) {
  Run run{parse_adjacency(options.who), std::nullopt, 0, {}};
  if (!options.schedule.empty()) {
    run.answer = ask(options, run.adjacency, [&](const auto& take) {
      read_schedule(options.schedule, [&](const ScheduledSteps& line) {
        take(Event(Gaussian{line.noise_multiplier}, Poisson{line.sampling_rate}, run.adjacency),
             line.count);
        run.steps += line.count;
      });
    });
    return run;
  }
  if (options.noise_multiplier.empty()) {
    refuse("--noise-multiplier", "give --noise-multiplier and --steps, or --schedule FILE");
  }
  run.who = parse_sampling(options.who);
  run.steps = run.who->steps;
  run.answer = ask_steps(options, *run.who, run.adjacency, run.who->events());
  return run;
}

std::string what_differs(Adjacency adjacency, std::uint64_t group) {
  if (group > 1) {
    const char* what = adjacency == Adjacency::kAddRemove ? "adding or removing"
                       : adjacency == Adjacency::kZeroOut ? "leaving out"
                                                          : "replacing";
    return fmt::format("{} up to {} records together", what, group);
  }
  switch (adjacency) {
    case Adjacency::kAddRemove: return "adding or removing one record";
    case Adjacency::kZeroOut: return "leaving out one record of a public number";
    case Adjacency::kReplaceOne: return "replacing one record by another";
  }
  return "";
}

void print_text(const Options& options, const Run& run) {
  const Interval& value = run.answer.value;
  const bool epsilon = options.asks_for_epsilon();
  const double given = options.given();
  const std::uint64_t group = options.group();
  print("{} ≤ {} at {} = {}, {}{}\n", epsilon ? "epsilon" : "delta", round_up(value.upper),
        epsilon ? "delta" : "epsilon", given, to_string(run.adjacency),
        group > 1 ? fmt::format(", for groups of up to {} records", group) : "");
  if (const auto& found = run.answer.certificate) {
    print("  certified      [{}, {}], width {:.1e}, by {}; worse direction: {}\n",
          round_down(value.lower, 11), round_up(value.upper, 11), found->error(),
          to_string(found->path), to_string(found->worst));
  } else {
    print("  an upper bound by the accountant {}; pld is tighter\n", options.accountant);
  }
  if (run.answer.not_a_bound) {
    print("  not a bound    {:.6g}, what the central limit theorem suggests\n",
          *run.answer.not_a_bound);
  }
  print("  for            {}{} steps, {}\n",
        options.who.epochs.empty() ? "" : fmt::format("{} epochs, ", options.who.epochs), run.steps,
        run.who ? fmt::format("{}, noise multiplier {}", describe_sampling(run.who->sampling),
                              options.noise_multiplier)
                : fmt::format("the schedule in {}", options.schedule));
  print(
      "  in words       {} changes the probability of any outcome\n"
      "                 by a factor of at most e^epsilon = {}, but for a failure of "
      "probability "
      "{}.\n",
      what_differs(run.adjacency, group),
      brief_up(std::exp(epsilon ? value.upper : given) * (1 + 1e-15)),
      epsilon ? fmt::format("{}", given) : round_up(value.upper));
  print(
      "  provided that  {},\n"
      "                 gradients are clipped before noise is added, and the number of steps was "
      "fixed in advance.\n",
      describe_proviso(run.who ? run.who->sampling : Sampling(Poisson{1})));
}

void print_json(const Options& options, const Run& run) {
  const nlohmann::json interval = {{"lower", run.answer.value.lower},
                                   {"upper", run.answer.value.upper}};
  const bool epsilon = options.asks_for_epsilon();
  nlohmann::json out = {{"accountant", options.accountant},
                        {"adjacency", to_string(run.adjacency)},
                        {"sampling", run.who ? options.who.sampling : "poisson"},
                        {"steps", run.steps}};
  if (!options.group_size.empty()) out["group_size"] = options.group();
  out["epsilon"] = epsilon ? interval : nlohmann::json(options.given());
  out["delta"] = epsilon ? nlohmann::json(options.given()) : interval;
  if (const auto& found = run.answer.certificate) {
    out["path"] = to_string(found->path);
    out["worst_direction"] = to_string(found->worst);
  }
  if (run.answer.not_a_bound) out["not_a_bound"] = {{"central_limit", *run.answer.not_a_bound}};
  if (run.who) {
    out["noise_multiplier"] = parse_number("--noise-multiplier", options.noise_multiplier);
    if (const auto* poisson = std::get_if<Poisson>(&run.who->sampling))
      out["sampling_rate"] = poisson->rate;
    if (!options.who.epochs.empty()) {
      out["epochs"] = parse_count("--epochs", options.who.epochs);
      out["steps_per_epoch"] = run.who->steps_per_epoch;
    }
  } else {
    out["schedule"] = options.schedule;
  }
  print("{}\n", out.dump());
}

// Epsilon of runs that end earlier, to the end.
void draw(const Options& options, const Run& run) {
  if (!run.who || !options.asks_for_epsilon() || run.steps == 0)
    refuse("--plot", "--plot draws epsilon over the steps of a sampler: give --delta and steps");
  const ParsedSampling& who = *run.who;
  const bool epochs = who.steps_per_epoch > 0;
  report::Plot plot =
      plot_of(fmt::format("ε over the run at noise multiplier {}", options.noise_multiplier),
              epochs ? "epochs" : "steps", fmt::format("ε ({})", to_string(run.adjacency)));
  report::Plot::Curve curve{"certified upper bound of a run that ends there", {{0, 0}}};
  // A bracket takes up to a second, a composition milliseconds. Epsilon rises steeply at first.
  const auto& certificate = run.answer.certificate;
  const int points = certificate && certificate->path == accounting::Path::kBracket ? 5 : 24;
  std::vector<double> shares;
  for (int i = 1; i <= points; ++i) shares.push_back(double(i) * i / (points * points));
  for (const std::uint64_t events : marks(who.events(), 1, shares)) {
    const double upper = events == who.events()
                             ? run.answer.value.upper
                             : ask_steps(options, who, run.adjacency, events).value.upper;
    const auto steps = static_cast<double>(events * who.steps_per_event);
    curve.points.push_back({epochs ? steps / double(who.steps_per_epoch) : steps, upper});
  }
  plot.curves = {std::move(curve)};
  write_plot(plot, fmt::format("{}, δ = {}", describe_sampling(who.sampling), options.given()),
             options.plot);
}

void run_account(const Options& options) {
  if (!options.runs.empty())
    return account_runs(
        {options.runs, options.delta, options.group_size, options.plot, options.json});
  if (options.delta.empty() == options.epsilon.empty()) {
    refuse("account", "give either --delta, to get epsilon, or --epsilon, to get delta");
  }
  const Run run = account(options);
  if (!options.plot.empty()) draw(options, run);
  (options.json ? print_json : print_text)(options, run);
}

}  // namespace

void add_account(Command& command) {
  auto options = std::make_shared<Options>();
  command
      .argument("RUN", options->runs,
                "Directories of runs: the epsilon of all of them together, for a record in each")
      .reads_folder("config.yaml")
      .excludes({"--noise-multiplier", "--sampling", "--adjacency", "--sampling-rate",
                 "--batch-size", "--dataset-size", "--batches-per-epoch", "--truncate", "--steps",
                 "--epochs", "--schedule", "--epsilon", "--accountant", "--verify"});
  command.option("--noise-multiplier", "N", options->noise_multiplier,
                 "Standard deviation of the noise divided by the clip norm, above 0");
  add_sampling_options(command, options->who);
  command
      .option("--schedule", "FILE", options->schedule,
              "Read the steps from JSON lines of {\"noise_multiplier\", \"sampling_rate\", "
              "\"steps\"}; - is standard input")
      .reads_file_or_dash()
      .excludes({"--sampling-rate", "--noise-multiplier", "--steps", "--epochs", "--sampling"});
  command.option("--group-size", "N", options->group_size,
                 "Certify for groups of up to N records, such as those of one person: all of them "
                 "present against all of them absent");
  command.option("--delta", "DELTA", options->delta,
                 "Failure probability, in (0, 1): asks for epsilon; for RUN the largest of their "
                 "deltas if not given");
  command.option("--epsilon", "EPSILON", options->epsilon, "At least 0: asks for delta");
  command.option("--accountant", "NAME", options->accountant, "Accountant")
      .choices({"pld", "rdp", "moments", "gdp", "f_dp"});
  command.flag("--verify", options->verify, "Evaluate by every independent path and compare");
  command.option("--plot", "FILE", options->plot, "Write epsilon over the run as an SVG file")
      .writes_file();
  command.json(options->json);
  command.action([options] { run_account(*options); });
}

}  // namespace discreet::cli
