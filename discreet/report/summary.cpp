#include "discreet/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "discreet/accounting/group_privacy.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/run/recount.h"
#include "discreet/run/run_files.h"
#include "discreet/run/trace.h"
#include "discreet/run/trace_seal.h"

namespace discreet::report {
namespace {

using Json = nlohmann::json;

constexpr const char* kOperator = "report";
constexpr std::size_t kHappeningsShown = 100;

// One line of the trace, and where it is.
struct Line {
  Json fields;
  std::uint64_t number;

  [[noreturn]] void refuse(const char* key, const char* wanted) const {
    malformed(kOperator, "line {} of trace.jsonl: {} is not {}", number, key, wanted);
  }
  const Json* find(const char* key) const {
    const auto at = fields.find(key);
    return at == fields.end() || at->is_null() ? nullptr : &*at;
  }
  std::optional<double> number_of(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "a finite number");
    return value->get<double>();
  }
  std::optional<std::uint64_t> count_of(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > (std::uint64_t{1} << 53))
      refuse(key, "a whole number");
    return value->get<std::uint64_t>();
  }
  std::optional<std::string> text_of(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(key, "a text");
    return value->get<std::string>();
  }
  template <class T>
  T need(std::optional<T> value, const char* key) const {
    if (!value) refuse(key, "there");
    return *std::move(value);
  }
};

// Follows a trace line by line.
class Follower {
 public:
  explicit Follower(RunSummary& into) : d_(into.declared), o_(into.observed) {}

  void take(const run::TraceLine& trace_line) {
    const Line line{read_json(trace_line.text), ++o_.lines};
    const std::string& kind = trace_line.kind;
    if (kind == "run_header") return header(line);
    if (kind == "run_end") return end(line);
    // Whatever comes after an end or a failure: the run went on.
    d_.ended = Ended::kUnfinished;
    d_.model_digest.reset();
    end_.reset();
    if (kind == "iter") iter(line);
    if (kind == "evaluation") evaluation(line);
    if (kind == "warning") happened(line, "warning", line.text_of("warning").value_or(""));
    if (kind == "resumed") {
      may_go_back_ = true;
      const std::uint64_t again = line.count_of("charged_again").value_or(0);
      happened(line, "resumed",
               again == 0 ? "from the last checkpoint"
                          : fmt::format("from the last checkpoint; {} steps were charged again: {}",
                                        again, line.text_of("differs").value_or("")));
    }
    if (kind == "failure") failure(line);
  }

  // After the last line. recount: none of a run that claims nothing.
  void finish(const std::optional<run::Recount>& recount) {
    const DpConfig& dp = d_.config.privacy;
    d_.claim = {std::nullopt, dp.target_epsilon, dp.target_delta, dp.adjacency};
    // The steps of a plan are those of the configuration, whatever the last line says.
    if (d_.ended == Ended::kCompleted && dp.target_steps && o_.steps != *dp.target_steps)
      d_.ended = Ended::kStopped;
    const bool by_plan = d_.ended == Ended::kCompleted || d_.ended == Ended::kBudgetReached;
    if (end_ && end_->upper < spent_)
      malformed(kOperator,
                "the last line claims epsilon {}, less than the {} that its steps spent: it is not "
                "the claim of this run",
                end_->upper, spent_);
    if (recount) {
      if (recount->known) require_recounted(*recount);
      if (end_) claim(*recount);
      within_budget(by_plan && end_ ? end_->upper : spent_);
    } else if (end_) {
      if (by_plan) d_.claim.lower = end_->lower;
      if (by_plan || d_.ended == Ended::kInterrupted) d_.claim.upper = end_->upper;
    }
    if (end_ && by_plan) {
      d_.steps = o_.steps;
      d_.epsilon = o_.epsilon;
      d_.noise_multiplier = o_.noise_multiplier;
      d_.released = o_.released;
    }
  }
  bool has_end() const { return end_.has_value(); }

 private:
  struct End {
    double lower, upper;
  };

  void require_recounted(const run::Recount& recount) const {
    const auto require = [](double claimed, double recomputed, const char* what) {
      if (run::is_below(claimed, recomputed))
        malformed(kOperator,
                  "{} epsilon {}, but the configuration and the recorded steps spend {}: the trace "
                  "does not belong to this run, or was edited",
                  what, claimed, recomputed);
    };
    if (o_.steps > 0) require(spent_, recount.spent.upper, "the steps of the trace state");
    if (!end_) return;
    require(end_->upper, recount.spent.upper, "the last line claims");
    if (d_.ended == Ended::kInterrupted && recount.planned)
      require(end_->upper, std::min(*recount.planned, d_.config.privacy.target_epsilon),
              "the last line of a run that was interrupted claims");
  }

  // Of a run with an end. What cannot be recomputed stays at the budget.
  void claim(const run::Recount& recount) {
    if (!recount.known) return;
    const double spent = std::max(end_->upper, recount.spent.upper);
    if (d_.ended == Ended::kCompleted ||
        (d_.ended == Ended::kBudgetReached && recount.at_budget.value_or(false))) {
      d_.claim.upper = spent;
      d_.claim.lower = std::min(end_->lower, recount.spent.lower);
      compose(recount.events, recount.distance);
    }
    // The lower end of an interrupted run is that of the steps it took: not for everyone to see.
    if (d_.ended == Ended::kInterrupted && recount.planned) {
      d_.claim.upper = std::min(std::max(spent, *recount.planned), d_.claim.upper);
      compose(recount.planned_events, recount.distance);
    }
  }

  // Groups, and several runs, are composed as a privacy loss distribution: noise must not react to
  // what was released, and the events must contain all rounding (run/recount.h).
  void compose(const std::vector<accounting::RepeatedEvent>& events, double distance) {
    const DpConfig& dp = d_.config.privacy;
    if (dp.accountant != AccountantKind::kPld && dp.mode != ScheduleMode::kFixed) return;
    if (dp.noise_family != NoiseFamily::kGaussian &&
        dp.noise_family != NoiseFamily::kRoundedGaussian)
      return;
    d_.claim.events = events;
    d_.claim.distance = distance;
    for (const std::uint64_t records : {2, 4, 10}) {
      try {
        const double epsilon =
            accounting::group_epsilon(events, records, dp.target_delta, distance).value.upper;
        d_.groups.push_back({records, std::max(epsilon, d_.claim.upper)});
      } catch (const Error&) {
        return;  // larger groups are not certified either
      }
    }
  }

  void header(const Line& line) {
    o_.skipped_rows = line.count_of("skipped_rows").value_or(0);
    d_.specification = line.need(line.text_of("specification"), "specification");
    d_.layout_hash = line.need(line.text_of("layout_hash"), "layout_hash");
    const std::string hash = line.need(line.text_of("config_hash"), "config_hash");
    if (hash != d_.config_hash)
      malformed(kOperator,
                "config.yaml has the hash {}, but the trace belongs to a run with {}: one of the "
                "two does not belong to this run, or was edited",
                d_.config_hash, hash);
    const Json* reasons = line.find("not_private");
    if (reasons == nullptr || !reasons->is_array()) line.refuse("not_private", "a list");
    for (const Json& reason : *reasons) {
      if (!reason.is_string()) line.refuse("not_private", "a list of texts");
      d_.not_private.push_back(reason.get<std::string>());
    }
    // The trace may have more reasons than the configuration, never fewer.
    for (const std::string& reason : not_private_reasons(d_.config.privacy))
      if (std::find(d_.not_private.begin(), d_.not_private.end(), reason) == d_.not_private.end())
        malformed(kOperator,
                  "the configuration is not private ({}), but the first line of the trace does not "
                  "say so",
                  reason);
    if (const Json* allocation = line.find("allocation_map")) {
      if (!allocation->is_object()) line.refuse("allocation_map", "a map");
      for (const auto& [name, pair] : allocation->items()) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number())
          line.refuse("allocation_map", "a map to multiplier and clip bound");
        d_.parts.push_back({name, pair[1].get<double>(), pair[0].get<double>()});
      }
    }
    if (const Json* corpus = line.find("corpus")) classes(Line{*corpus, line.number});
    o_.epsilon.push_back({0, 0});
  }

  void classes(const Line& corpus) {
    const Json* list = corpus.find("classes");
    if (list == nullptr || !list->is_array()) corpus.refuse("corpus.classes", "a list");
    for (const Json& each : *list) {
      const Line line{each, corpus.number};
      d_.classes.push_back({line.need(line.text_of("class"), "class"),
                            line.need(line.number_of("noise_multiplier"), "noise_multiplier"),
                            line.need(line.count_of("most_uses"), "most_uses"),
                            line.need(line.number_of("epsilon"), "epsilon"),
                            line.need(line.number_of("delta"), "delta")});
    }
  }

  void iter(const Line& line) {
    const double step = static_cast<double>(line.need(line.count_of("t"), "t") + 1);
    if (step <= o_.epsilon.back().step) {
      if (!may_go_back_ || step < 1) line.refuse("t", "later than that of the previous step");
      forget_from(step);
    }
    may_go_back_ = false;
    const auto put = [&](Series& series, const char* key) {
      if (const auto value = line.number_of(key)) series.push_back({step, *value});
    };
    const double spent =
        line.need(line.number_of("cumulative_epsilon_after"), "cumulative_epsilon_after");
    if (spent < spent_)
      line.refuse("cumulative_epsilon_after", "at least that of the previous step");
    spent_ = spent;
    // What was spent before the first step: private bounds of the data.
    if (o_.epsilon.size() == 1)
      o_.epsilon[0].value = line.number_of("cumulative_epsilon_before").value_or(0);
    o_.epsilon.push_back({step, spent});
    put(o_.noise_multiplier, "noise_scale_sigma");
    if (!scaled_ && !o_.noise_multiplier.empty()) {
      for (NoisePart& part : d_.parts) part.noise_multiplier *= o_.noise_multiplier[0].value;
      scaled_ = true;
    }
    put(o_.norm_p50, "norm_p50");
    put(o_.norm_p95, "norm_p95");
    put(o_.clip_fraction, "clip_fraction");
    released(line, step);
    o_.zeroed_records += line.count_of("zeroed_records").value_or(0);
    o_.steps = static_cast<std::uint64_t>(step);
  }

  void released(const Line& line, double step) {
    const Json* metrics = line.find("released");
    if (metrics == nullptr || d_.config.privacy.metrics_release != MetricsRelease::kDp) return;
    const Line values{*metrics, line.number};
    o_.released.clip_fraction.push_back(
        {step, values.need(values.number_of("clip_fraction"), "released.clip_fraction")});
    o_.released.group_clip_fraction.clear();
    const Json* groups = values.find("group_clip_fraction");
    if (groups == nullptr || !groups->is_array()) line.refuse("released", "a list by part");
    for (const Json& each : *groups) {
      if (!each.is_number()) line.refuse("released", "a list of numbers");
      o_.released.group_clip_fraction.push_back(each.get<double>());
    }
  }

  // Steps from here on were executed again; what they cost the first time is in `spent_`.
  void forget_from(double step) {
    for (Series* series : {&o_.epsilon, &o_.noise_multiplier, &o_.norm_p50, &o_.norm_p95,
                           &o_.clip_fraction, &o_.released.clip_fraction})
      std::erase_if(*series, [&](const Point& point) { return point.step >= step; });
    std::erase_if(o_.evaluations, [&](const Evaluation& each) { return each.step >= step; });
  }

  void evaluation(const Line& line) {
    const double epoch =
        line.number_of("epoch").value_or(static_cast<double>(o_.evaluations.size() + 1));
    o_.evaluations.push_back({static_cast<double>(o_.steps), epoch, line.number_of("train_loss"),
                              line.number_of("train_accuracy"), line.number_of("test_loss"),
                              line.number_of("test_accuracy")});
    const Evaluation& last = o_.evaluations.back();
    o_.accuracy_is_held_out = last.test_accuracy.has_value();
    o_.accuracy = last.test_accuracy ? last.test_accuracy : last.train_accuracy;
  }

  void happened(const Line& line, const char* kind, std::string text) {
    if (o_.happenings.size() == kHappeningsShown) {
      ++o_.more_happenings;
      return;
    }
    o_.happenings.push_back({line.count_of("t").value_or(o_.steps), kind, std::move(text)});
  }

  void failure(const Line& line) {
    const std::string code = line.text_of("failure_code").value_or("");
    d_.ended = code == to_string(ErrorCode::kPrivacyBudgetExceeded) ? Ended::kBudgetReached
                                                                    : Ended::kFailed;
    happened(line, "failure", code + ": " + line.text_of("diagnostics").value_or(""));
  }

  // The claim of a training run is `epsilon` and says how it ended; that of the mechanism alone is
  // `final_epsilon`, what was spent so far, which is a claim only where the end was planned.
  void end(const Line& line) {
    const DpConfig& dp = d_.config.privacy;
    const Json* epsilon = line.find("epsilon");
    const bool claims_nothing = epsilon == nullptr && line.fields.contains("epsilon");
    if (claims_nothing && d_.not_private.empty()) line.refuse("epsilon", "an interval");
    if (epsilon == nullptr) epsilon = line.find("final_epsilon");
    if (epsilon == nullptr || !epsilon->is_object()) line.refuse("epsilon", "an interval");
    const Line interval{*epsilon, line.number};
    const double lower = interval.need(interval.number_of("lower"), "epsilon.lower");
    const double upper = interval.need(interval.number_of("upper"), "epsilon.upper");
    if (!(0 <= lower && lower <= upper)) line.refuse("epsilon", "an interval");
    if (line.need(line.number_of("delta"), "delta") != dp.target_delta)
      line.refuse("delta", "that of the configuration");
    if (line.need(line.text_of("adjacency"), "adjacency") != accounting::to_string(dp.adjacency))
      line.refuse("adjacency", "that of the configuration");
    if (const auto accuracy = line.number_of("accuracy")) {
      o_.accuracy = accuracy;
      o_.accuracy_is_held_out = true;
    }
    if (const auto planned = line.count_of("planned_steps"); planned && !dp.target_steps)
      d_.planned_steps = planned;
    d_.model_digest = line.text_of("model_sha256");
    end_ = {lower, upper};
    if (const auto ended = line.text_of("ended")) {
      for (const Ended each :
           {Ended::kCompleted, Ended::kBudgetReached, Ended::kInterrupted, Ended::kFailed})
        if (*ended == to_string(each)) {
          d_.ended = each;
          return;
        }
      line.refuse("ended", "completed, budget_reached, interrupted or failed");
    }
    if (d_.ended != Ended::kUnfinished) return;  // a failure came before
    d_.ended =
        d_.planned_steps && o_.steps == *d_.planned_steps ? Ended::kCompleted : Ended::kStopped;
  }

  void within_budget(double epsilon) const {
    const double target = d_.config.privacy.target_epsilon;
    if (epsilon > target)
      malformed(
          kOperator,
          "epsilon is {}, above the configured budget of {}: no run of the mechanism does that",
          epsilon, target);
  }

  Declared& d_;
  Observed& o_;
  std::optional<End> end_;
  double spent_ = 0;          // by all steps, also those that were executed again
  bool may_go_back_ = false;  // a "resumed" came since the last step
  bool scaled_ = false;
};

}  // namespace

std::string_view to_string(Ended ended) noexcept {
  switch (ended) {
    case Ended::kCompleted: return "completed";
    case Ended::kBudgetReached: return "budget_reached";
    case Ended::kInterrupted: return "interrupted";
    case Ended::kStopped: return "stopped";
    case Ended::kFailed: return "failed";
    case Ended::kUnfinished: return "unfinished";
  }
  return "?";
}

std::string seal_sentence(const Declared& declared) {
  return declared.sealed ? std::string("seal verified")
                         : "seal not verified: " + declared.not_sealed;
}

namespace {

void take_seal(const run::SealFiles& files, bool has_end, RunSummary& summary) {
  Declared& declared = summary.declared;
  const run::SealCheck seal = run::check_seal(files, summary.trace);
  declared.sealed = seal.verified;
  declared.not_sealed = seal.why_not;
  if (!seal.ledger_note.empty()) summary.ledger_note = seal.ledger_note;
  if (!seal.verified) return;
  // The claim of an unfinished run follows from its first line; its steps are counted.
  if (!has_end) {
    declared.sealed = seal.is_counted;
    if (!seal.is_counted)
      declared.not_sealed =
          "only the start of the trace is sealed, and trace.steps, which counts the steps of a "
          "running run, does not exist; resuming the run seals it";
    return;
  }
  if (seal.lines >= summary.observed.lines) return;
  declared.sealed = false;
  declared.not_sealed =
      "the end of the trace was written after it was sealed; resuming the run seals it";
}

Digest digest_of_file(const std::filesystem::path& path) {
  std::ifstream file;
  if (std::filesystem::is_regular_file(path)) file.open(path, std::ios::binary);
  const Digest digest = sha256_of(file);
  if (!file.is_open() || file.bad())
    io_error(kOperator, "cannot read {}: it is not a file, or not readable", path.string());
  return digest;
}

void require_model(const std::filesystem::path& run, const Declared& declared) {
  const std::filesystem::path model = run / "model.safetensors";
  if (!declared.model_digest || !std::filesystem::exists(model)) return;
  const std::string found = to_hex(digest_of_file(model));
  if (found != *declared.model_digest)
    malformed(kOperator,
              "model.safetensors is not the model of this run: its SHA-256 is {}, and the "
              "trace ends with {}; restore the original file",
              found, *declared.model_digest);
}

// Of earlier versions, and of runs without held-out records, there is none.
std::optional<HeldOut> held_out_of(const std::filesystem::path& run) try {
  const std::filesystem::path file = run / "held_out.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const Bytes bytes = read_file(file, std::size_t{1} << 26);
  const Json held_out = read_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto number = [](const Json& from, const char* key) -> std::optional<double> {
    const Json& value = from.at(key);
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  };
  HeldOut out;
  if (const Json& most = held_out.at("majority_class"); !most.is_null())
    out.majority_class = most.get<std::string>();
  out.majority_accuracy = number(held_out, "majority_accuracy");
  out.rmse = number(held_out, "rmse");
  out.r2 = number(held_out, "r2");
  for (const Json& each : held_out.at("classes"))
    out.classes.push_back({each.at("class").get<std::string>(),
                           each.at("records").get<std::uint64_t>(), number(each, "recall"),
                           number(each, "precision")});
  return out;
} catch (const nlohmann::json::exception& error) {
  malformed(kOperator, "held_out.json has unexpected content; remove it: {}", error.what());
}

}  // namespace

RunSummary summarize(const std::filesystem::path& run,
                     const std::optional<std::filesystem::path>& secret) {
  RunSummary summary;
  Declared& declared = summary.declared;
  declared.config = run::read_config(run);
  if (!std::filesystem::exists(run / "trace.jsonl"))
    invalid_input(kOperator, "{} does not exist, so nothing can be said of what the run did",
                  (run / "trace.jsonl").string());
  declared.planned_steps = declared.config.privacy.target_steps;
  declared.config_hash = to_hex(config_hash(declared.config));
  Observed& observed = summary.observed;
  observed.name = std::filesystem::absolute(run).lexically_normal().filename().string();
  if (observed.name.empty())
    observed.name = std::filesystem::absolute(run).lexically_normal().parent_path().filename();

  const run::SealFiles seal = run::read_seal(run, declared.config.privacy.secure, secret);
  summary.trace = run::trace_lines(run / "trace.jsonl");
  const std::vector<run::TraceLine>& lines = summary.trace;
  Follower follower(summary);
  if (lines.empty())
    malformed(kOperator, "{} has no complete line, so nothing is known about the run",
              (run / "trace.jsonl").string());
  for (const run::TraceLine& line : lines) follower.take(line);
  std::optional<run::Recount> recount;
  if (declared.not_private.empty()) recount = run::recount(declared.config, lines);
  follower.finish(recount);
  observed.trace_head = to_hex(sha256(bytes_of(lines.back().text)));
  take_seal(seal, follower.has_end(), summary);
  require_model(run, declared);
  // An earlier end may have left the file.
  if (follower.has_end()) observed.held_out = held_out_of(run);
  return summary;
}

}  // namespace discreet::report
