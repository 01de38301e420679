#include "discreet/training/train.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json.h"
#include "discreet/base/text/utf8.h"
#include "discreet/config/config_resolve.h"
#include "discreet/run/environment.h"
#include "discreet/run/run_keys.h"
#include "discreet/run/session.h"
#include "discreet/training/advice.h"
#include "discreet/training/corpus.h"
#include "discreet/training/defaults.h"
#include "discreet/training/safetensors.h"
#include "discreet/training/setup.h"

namespace discreet::training {
namespace {

constexpr const char* kOperator = "train";

// The configuration that the run records. A run of an earlier version continues under its own hash.
Config as_begun(Config config, const TrainOptions& options) {
  if (options.resume && std::filesystem::exists(options.directory / "config.yaml")) {
    const Config was = run::read_config(options.directory);
    config.has_whole_paths |= was.has_whole_paths;
    config.data.on_bad_row = was.data.on_bad_row;
  } else if (options.on_bad_row == data::BadRow::kSkip &&
             (config.data.format == DataFormat::kCsv || config.data.format == DataFormat::kNpy)) {
    config.data.on_bad_row = data::BadRow::kSkip;
  }
  return config;
}

// A loss this many times that of a model that knows nothing is not the noise of the steps.
constexpr double kDiverges = 2;
// The largest loss of an answer in [-1, 1]: half the squared error.
constexpr double kFarthestTarget = 2;

class Run {
 public:
  Run(const Config& config, const TrainOptions& options)
      : config_(as_begun(config, options)),
        options_(options),
        files_(options.directory, config_, options.resume, options.secret) {
    try {
      open();
      begin_or_resume();
    } catch (...) {
      files_.remove_if_new();
      throw;
    }
  }

  RunResult train() {
    const auto begin = std::chrono::steady_clock::now();
    loop(begin);
    RunResult out = finish();
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return out;
  }

 private:
  const DpConfig& privacy() const { return config_.privacy; }
  Training& training() { return *setup_->training; }
  mechanism::Mechanism& mechanism() { return training().mechanism; }
  Corpus* corpus() { return training().corpus; }

  // ---- before the first step

  void open() {
    const auto& header = files_.header();
    SetupOptions options{files_.secret(), header ? header->environment : environment_};
    if (header) options.generator = header->generator;
    options.threads = options_.threads;
    options.on_bad_row = options_.on_bad_row;
    options.arrays = options_.arrays;
    options.ledger_note = files_.directory() / "ledger.note";
    options.again = options_.again;
    options.resumes = header.has_value();
    options.require_data = [this](const Digest& commitment) { require_same_data(commitment); };
    setup_.emplace(config_, options);
    notes_ = setup_->notes;
    require_same_run();
    require_same_contributions();
    session_.emplace(files_, mechanism(), *setup_->key, environment_);
  }

  void name_in_corpus() {
    if (corpus() == nullptr) return;
    const std::string lineage = mechanism().lineage();
    corpus()->take(
        {setup_->identity("uses", lineage), setup_->ledger_run(lineage), lineage_epoch_});
  }

  // The first step of the epoch to come is in the ledger when this returns.
  void begin_corpus() {
    if (corpus() == nullptr) return;
    name_in_corpus();
    corpus()->begin(mechanism().t());
    keep_ledger_note();
  }

  // What the ledger was at this time goes into the seal.
  void keep_ledger_note() {
    if (corpus() != nullptr && corpus()->ledger().note())
      files_.keep_ledger_note(*corpus()->ledger().note());
  }

  // The header is on the disk before the ledger has the run: one whose trace was lost is known, and
  // does not release the same noise again on contributions that nothing compares.
  void begin_first(const run::TracePosition& at) {
    if (corpus() != nullptr && !options_.again && corpus()->ledger().has(setup_->ledger_run({})))
      invalid_input(
          kOperator,
          "the ledger already contains this run, but {} has no trace of it, so its releases are "
          "unknown; restore trace.jsonl, or start another run in a new directory",
          files_.directory().string());
    name_in_corpus();
    files_.begin_trace(header(), at);
    begin_corpus();
    files_.seal_beginning();
  }

  void require_same_data(const Digest& commitment) const {
    if (files_.header() && files_.header()->data_commitment != to_hex(commitment))
      invalid_input(
          kOperator,
          "the data differ from those with which {} started; restore them, or start another run",
          files_.directory().string());
  }

  void require_same_run() {
    const auto& header = files_.header();
    if (!header) return;
    std::string differs;
    const auto compare = [&](const char* what, const std::string& was, const std::string& is) {
      if (was != is)
        differs += fmt::format("{}{} was {} and is {}", differs.empty() ? "" : "; ", what, was, is);
    };
    compare("the specification", header->specification, run::specification());
    compare("the configuration", header->config_hash, to_hex(config_hash(config_)));
    compare("the model", header->layout_hash, to_hex(mechanism().layout().hash()));
    if (!differs.empty())
      invalid_input(kOperator, "{} is another run: {}", files_.directory().string(), differs);
  }

  // With other contributions, a place would be another record, drawn under the same noise. A
  // contribution that was withdrawn from the ledger since keeps its place.
  void require_same_contributions() {
    const auto& header = files_.header();
    if (!header || !header->admitted || corpus() == nullptr) return;
    const std::uint64_t now = corpus()->admitted();
    const bool same = header->admitted_hash
                          ? *header->admitted_hash == to_hex(corpus()->admitted_hash())
                          : *header->admitted == now;
    if (same) return;
    invalid_input(kOperator,
                  "the contributions differ from those with which {} started: {} were admitted "
                  "then, and {} now, or others; restore the files of the corpus, or start another "
                  "run. 'discreet withdraw' removes a contribution from a run that continues",
                  files_.directory().string(), *header->admitted, now);
  }

  cbor::Value header() {
    std::vector<cbor::Entry> bounds;
    for (const auto& [column, limits] : setup_->data.released_bounds)
      bounds.push_back({column, cbor::array({limits.at(0), limits.at(1)})});
    std::vector<cbor::Entry> more = {{"released_bounds", cbor::map(std::move(bounds))}};
    if (corpus() != nullptr) more.push_back({"corpus", corpus()->summary(mechanism())});
    if (config_.data.on_bad_row == data::BadRow::kSkip)
      more.push_back({"skipped_rows", skipped_rows(setup_->data)});
    return session_->header(setup_->commitment, run::spelling(setup_->streams->algorithm),
                            mechanism().fuses_passes(), std::move(more));
  }

  void begin_or_resume() {
    const std::optional<run::Checkpoint> saved = files_.checkpoint(
        *setup_->key, {run::specification(), config_hash(config_), mechanism().layout().hash()});
    run::TracePosition at;
    cbor::Value before = files_.header() ? files_.header()->environment : environment_;
    Bytes state = mechanism().save();
    std::uint64_t t = 0;
    if (saved) {
      const cbor::Value training = cbor::decode(saved->training);
      this->training().restore(training.at("state").as_bytes());
      before = training.at("environment");
      if (const cbor::Value* epoch = training.find("lineage_epoch"))
        lineage_epoch_ = epoch->as_unsigned();
      at = saved->trace;
      state = saved->mechanism;
      t = saved->step;
      session_->restore(training);
      if (const cbor::Value* note = training.find("ledger_note"); note != nullptr && corpus())
        corpus()->ledger().require_extends(std::string(note->as_text()));
    }
    const std::string differs = run::environment_difference(before, environment_);
    if (differs.empty()) {
      if (saved) mechanism().restore(state, t);
      use_lineage();
      if (files_.header()) {
        begin_corpus();
        files_.begin_trace(header(), at);
      } else {
        begin_first(at);
      }
      // The note of the ledger is sealed before the first step.
      if (!saved && corpus() != nullptr) write_checkpoint();
      return;
    }
    go_on_elsewhere(state, t, at, differs);
  }

  // Later steps may differ in their bits from earlier ones, so nothing is repeated.
  void go_on_elsewhere(ByteView state, std::uint64_t t, const run::TracePosition& at,
                       const std::string& differs) {
    const std::uint64_t released = t + files_.steps_after(at, t);
    mechanism().restore(state, released, /*fresh=*/true);
    // Batches are drawn again: an event of several steps that is cut at t is charged again whole.
    const std::uint64_t again = released - t + t % mechanism().sampling().steps_per_event();
    const double spent = mechanism().spent().epsilon.upper;
    if (privacy().enabled && spent > privacy().target_epsilon)
      budget_exceeded(
          kOperator,
          "{}. The {} steps since the last checkpoint or of a partial epoch (all planned steps if "
          "trace.steps is missing, as in runs of earlier versions) would be charged again, which "
          "raises epsilon to {}, above the target {}; continue where the run was started",
          differs, again, spent, privacy().target_epsilon);
    use_lineage();
    lineage_epoch_ = t / (corpus() != nullptr ? corpus()->steps_per_epoch()
                                              : mechanism().sampling().steps_per_epoch);
    begin_corpus();
    std::vector<cbor::Entry> resumed = {
        {"t", t},           {"released", released}, {"charged_again", again},
        {"noise", "fresh"}, {"differs", differs},   {"environment", environment_}};
    if (corpus() != nullptr)
      resumed.push_back({"corpus", cbor::map({{"ledger", corpus()->ledger_name()}})});
    files_.extend_trace(at, cbor::map(std::move(resumed)));
    // Before any step: else the charge would be forgotten if this process ended.
    write_checkpoint();
    notes_.push_back(
        fmt::format("the environment changed since the run started ({}): {} steps were charged "
                    "again, and the run can no longer be replayed",
                    differs, again));
  }

  void use_lineage() {
    const std::string lineage = mechanism().lineage();
    if (!lineage.empty())
      training().sampler = mechanism::Sampler(mechanism().sampling(), setup_->rows,
                                              setup_->streams->sampling(lineage));
  }

  void write_checkpoint() {
    std::vector<cbor::Entry> more;
    if (lineage_epoch_ != 0) more.push_back({"lineage_epoch", lineage_epoch_});
    if (corpus() != nullptr && corpus()->ledger().note())
      more.push_back({"ledger_note", *corpus()->ledger().note()});
    session_->write_checkpoint(training().save(), std::move(more));
  }

  // ---- the steps

  void loop(std::chrono::steady_clock::time_point begin) {
    const std::uint64_t first = mechanism().t();
    const std::optional<std::uint64_t> planned = privacy().target_steps;
    while (!planned || mechanism().t() < *planned) {
      if (options_.stop != nullptr && *options_.stop && !files_.is_repeating()) return;
      try {
        const StepReport report = step(training(), *session_, [this] { write_checkpoint(); });
        released_ = report.released.released;
        if (report.evaluation) last_ = *report.evaluation;
        if (options_.progress) options_.progress(progress(report, first, begin));
      } catch (const Error& error) {
        // The end of the budget is recorded with the end of the run.
        if (error.code() == ErrorCode::kPrivacyBudgetExceeded && mechanism().t() > 0) return;
        session_->fail(error);
        throw;
      }
    }
  }

  Progress progress(const StepReport& report, std::uint64_t first,
                    std::chrono::steady_clock::time_point begin) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    Progress out;
    out.step = mechanism().t();
    out.planned = privacy().target_steps;
    out.epsilon = report.released.budget.after.upper;
    out.steps_per_second = static_cast<double>(out.step - first) / std::max(seconds, 1e-9);
    if (out.planned)
      out.seconds_left = static_cast<double>(*out.planned - out.step) / out.steps_per_second;
    if (report.evaluation) out.evaluation = &*report.evaluation;
    return out;
  }

  // ---- the end

  RunResult finish() {
    RunResult out;
    out.directory = files_.directory();
    out.delta = privacy().target_delta;
    out.adjacency = privacy().adjacency;
    out.not_private = mechanism().not_private();
    out.notes = notes_;
    out.released = released_;
    if (const std::optional<data::Dataset>& test = setup_->data.test) {
      const Score held_out = score(training().network, training().model(), *test, options_.threads);
      out.accuracy = held_out.accuracy;
      if (std::isfinite(held_out.loss)) out.loss = held_out.loss;
      out.held_out = measure(training().network, training().model(), *test,
                             config_.data.label_bounds, options_.threads);
      write_atomically(files_.directory() / "held_out.json",
                       bytes_of(to_json(out.held_out->to_cbor()) + "\n"), Access::kOwner);
    }
    out.skipped_rows = skipped_rows(setup_->data);
    out.warnings = setup_->warnings;
    warn_of_course(out);
    write_checkpoint();
    // Names of columns are declared; nothing here is of the records.
    std::map<std::string, std::string> about = session_->about_model();
    if (const std::vector<std::string>& names = setup_->features; !names.empty())
      about["features"] = to_json(cbor::array({names.begin(), names.end()}));
    files_.write_model(encode_safetensors(training().network.layout(), training().model(), about));
    const auto number = [](const auto& x) { return x ? cbor::Value(*x) : nullptr; };
    keep_ledger_note();
    const run::Session::End end = session_->end(
        std::nullopt, {{"accuracy", number(out.accuracy)}, {"loss", number(out.loss)}});
    out.ended = end.ended;
    out.epsilon = end.epsilon;
    out.steps = end.steps;
    out.planned = end.planned;
    out.zeroed = end.zeroed;
    out.is_noise_only = end.is_noise_only;
    return out;
  }

  // What the losses say of the run: confidential.
  void warn_of_course(RunResult& out) const {
    const std::size_t classes = setup_->data.train.classes;
    const double ignorant = classes != 0 ? std::log(static_cast<double>(classes)) : kFarthestTarget;
    if (last_ && last_->train_loss && !(*last_->train_loss <= kDiverges * ignorant))
      out.warnings.push_back(
          fmt::format("the training loss of epoch {} is {:.4g}, and that of a model that knows "
                      "nothing is {:.4g}: the run diverges; lower optimizer.rate",
                      last_->epoch, *last_->train_loss, ignorant));
    if (!out.held_out || !out.accuracy || !out.held_out->baseline()) return;
    if (*out.accuracy <= *out.held_out->baseline())
      out.warnings.push_back(
          fmt::format("the model is not more often right than the answer {} for every held-out "
                      "record; more steps, larger batches or another rate may help",
                      excerpt(out.held_out->majority()->name)));
  }

  const Config config_;
  const TrainOptions& options_;
  run::RunFiles files_;
  const cbor::Value environment_ = run::environment();
  std::optional<Setup> setup_;
  std::optional<run::Session> session_;
  std::uint64_t lineage_epoch_ = 0;  // in which the lineage started
  std::optional<mechanism::ReleasedMetrics> released_;
  std::optional<Evaluation> last_;
  std::vector<std::string> notes_;
};

}  // namespace

RunResult train(const Config& resolved, const TrainOptions& options) {
  return Run(resolved, options).train();
}

LoadedConfig load_training_config(std::string_view yaml, std::string_view name,
                                  std::span<const std::string> settings,
                                  const std::filesystem::path& relative_to,
                                  const std::filesystem::path* resumed) {
  std::vector<std::string> all(settings.begin(), settings.end());
  const ReadConfig read = read_config(yaml, name, settings);
  const bool continues = resumed != nullptr && std::filesystem::exists(*resumed / "config.yaml");
  std::ranges::copy(continues ? settings_of_run(read, *resumed) : default_settings(read),
                    std::back_inserter(all));
  LoadedConfig out = load_config(yaml, name, all);
  CorpusConfig& corpus = out.config.corpus;
  std::vector<std::optional<std::string>*> files = files_of(out.config);
  files.push_back(&corpus.ledger_key);
  for (std::optional<std::string>* path : files)
    if (*path) *path = std::filesystem::absolute(relative_to / **path).lexically_normal().string();
  if (corpus.policy && !corpus.ledger)
    corpus.ledger = (std::filesystem::path(*corpus.policy).parent_path() / "ledger.db").string();
  return out;
}

}  // namespace discreet::training
