#include "discreet/training/train.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/base/json.h"
#include "discreet/base/version.h"
#include "discreet/mechanism/config_resolve.h"
#include "discreet/run/files.h"
#include "discreet/training/corpus.h"
#include "discreet/training/environment.h"
#include "discreet/training/model.h"
#include "discreet/training/open.h"
#include "discreet/training/private_bounds.h"
#include "discreet/training/run_keys.h"
#include "discreet/training/safetensors.h"

namespace discreet::training {
namespace {

using mechanism::Config;
using mechanism::DpConfig;

constexpr const char* kOperator = "train";

Digest digest_of(const Data& data) {
  Sha256 hash;
  hash.update(data.train.digest);
  if (data.test) hash.update(data.test->digest);
  return hash.finish();
}

OptimizerOptions optimizer_options(const Config& config) {
  const mechanism::OptimizerConfig& o = config.optimizer;
  return {o.kind,         o.rate,     o.momentum,
          o.beta1,        o.beta2,    o.floor,
          o.weight_decay, o.schedule, config.privacy.target_steps.value_or(0),
          o.average};
}

bool is_of_the_mechanism(ErrorCode code) {
  return code == ErrorCode::kInvalidGradient || code == ErrorCode::kNanInSigma ||
         code == ErrorCode::kAccountantOverflow || code == ErrorCode::kAccountantDivergence ||
         code == ErrorCode::kRngConsumptionViolation;
}

class Run {
 public:
  Run(const Config& config, const TrainOptions& options)
      : config_(config),
        options_(options),
        files_(options.directory, config, options.resume, options.secret) {
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
    const Ended ended = loop(begin);
    RunResult out = finish(ended);
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return out;
  }

 private:
  const DpConfig& privacy() const { return config_.privacy; }
  mechanism::Mechanism& mechanism() { return training_->mechanism; }
  bool has_claim() const {
    return privacy().enabled && !(privacy().debug && privacy().noise_multiplier == 0);
  }

  // ---- before the first step

  void open() {
    if (!privacy().target_steps && !privacy().enabled)
      throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                  "a run without privacy ends by its steps only; give run.epochs or target_steps");
    const std::optional<random::Generator> bounds_noise = bounds_stream();
    data_ = open_data(config_, {}, options_.on_bad_row, bounds_noise ? &*bounds_noise : nullptr);
    notes_ = data_.notes;
    const Digest digest = digest_of(data_);
    commitment_ = data_commitment(digest, files_.secret());
    key_ = run_key(files_.secret(), config_, digest);
    require_same_data();
    // Beyond N0 batches larger than most_records() are no rare event (apply.md).
    if (privacy().declared_size && data_.train.rows > *privacy().declared_size)
      throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                  fmt::format("declared_size is {}, but there are {} records; declare at least as "
                              "many as there may be",
                              *privacy().declared_size, data_.train.rows));
    if (config_.corpus.policy) {
      if (!privacy().target_steps)
        throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                    "a corpus needs planned steps: give run.epochs or target_steps");
      corpus_.emplace(config_, data_.train, options_.threads, ledger_run({}),
                      files_.directory() / "ledger.note", !options_.again);
      notes_.push_back(corpus_->sentence());
    }
    if (config_.data.format == mechanism::DataFormat::kCsv) features_ = data_.train.feature_names;
    map_features(config_, data_.train, options_.threads);
    if (data_.test) map_features(config_, *data_.test, options_.threads);

    const auto& header = files_.header();
    streams_ =
        run_streams(privacy(), in_environment(*key_, header ? header->environment : environment_),
                    header ? std::optional(header->generator) : std::nullopt);
    Network network(shape_of(config_.model, data_.train.features, data_.train.classes),
                    public_key(privacy()));
    mechanism::Mechanism mechanism(config_, network.layout(), streams_->mechanism(),
                                   mechanism::kernel_replay_token(config_, commitment_),
                                   options_.threads, 1, data_.before, routes(network));
    mechanism::Sampler sampler(mechanism.sampling(), data_.train.rows, streams_->sampling({}));
    Optimizer optimizer(optimizer_options(config_), mechanism.layout());
    training_.emplace(Training{config_,
                               data_.train,
                               data_.test ? &*data_.test : nullptr,
                               std::move(network),
                               std::move(optimizer),
                               std::move(sampler),
                               std::move(mechanism),
                               {},
                               options_.threads,
                               privacy().target_steps,
                               corpus_ ? &*corpus_ : nullptr});
    require_same_run();
  }

  std::optional<mechanism::Routes> routes(const Network& network) {
    if (!corpus_) return std::nullopt;
    corpus_->resolve(
        network.layout().with_public(privacy().public_modules, privacy().public_groups),
        mechanism::plan_sampling(privacy()));
    return corpus_->routes();
  }

  // Of this run and lineage: what is executed again bit for bit was used once.
  Digest identity(std::string_view purpose, const std::string& lineage) const {
    const auto& begun = files_.header();
    const random::Key key = in_environment(*key_, begun ? begun->environment : environment_);
    return Sha256().update(key.derive(purpose).secret_bytes()).update(bytes_of(lineage)).finish();
  }
  std::string ledger_run(const std::string& lineage) const {
    return to_hex(ByteView(identity("ledger", lineage)).first(16));
  }
  // The first step of the epoch to come is in the ledger when this returns.
  void begin_corpus() {
    if (!corpus_) return;
    const std::string lineage = mechanism().lineage();
    corpus_->begin({identity("uses", lineage), ledger_run(lineage), lineage_epoch_}, mechanism(),
                   mechanism().t());
  }

  // Of bounds that are released before training: of the file as it is, since no record is read yet.
  std::optional<random::Generator> bounds_stream() const {
    if (config_.data.private_bounds.empty() || !config_.data.train) return std::nullopt;
    const Digest file = sha256(run::read_file(*config_.data.train, std::size_t{1} << 40));
    return private_bounds_stream(privacy(), run_key(files_.secret(), config_, file));
  }

  void require_same_data() {
    if (files_.header() && files_.header()->data_commitment != to_hex(commitment_))
      throw Error(ErrorCode::kInvalidInput, kOperator,
                  fmt::format("the data are not those that {} was begun with; put them back, or "
                              "begin another run",
                              files_.directory().string()));
  }

  void require_same_run() {
    const auto& header = files_.header();
    if (!header) return;
    std::string differs;
    const auto compare = [&](const char* what, const std::string& was, const std::string& is) {
      if (was != is)
        differs += fmt::format("{}{} was {} and is {}", differs.empty() ? "" : "; ", what, was, is);
    };
    compare("the specification", header->specification, specification());
    compare("the configuration", header->config_hash, to_hex(mechanism::config_hash(config_)));
    compare("the model", header->layout_hash, to_hex(mechanism().layout().hash()));
    if (!differs.empty())
      throw Error(ErrorCode::kInvalidInput, kOperator,
                  fmt::format("{} is another run: {}", files_.directory().string(), differs));
  }

  static std::string specification() {
    return fmt::format("{} {}", mechanism::kAlgorithm, mechanism::kSpecVersion);
  }

  cbor::Value header() {
    const mechanism::SamplingPlan& plan = mechanism().sampling();
    const auto number = [](const auto& x) { return x ? cbor::Value(*x) : nullptr; };
    std::vector<cbor::Entry> entries = mechanism().trace_header().as_map();
    entries.push_back({"data_commitment", ByteView(commitment_)});
    entries.push_back({"environment", environment_});
    entries.push_back({"noise_generator", spelling(streams_->algorithm)});
    entries.push_back({"objective", "minimize"});
    std::vector<cbor::Entry> bounds;
    for (const auto& [column, limits] : data_.released_bounds)
      bounds.push_back({column, cbor::array({limits.at(0), limits.at(1)})});
    entries.push_back({"released_bounds", cbor::map(std::move(bounds))});
    entries.push_back({"declared_size", number(plan.size)});
    entries.push_back({"effective_batch_size", number(plan.batch)});
    entries.push_back({"sampling_rate", number(plan.rate)});
    entries.push_back({"gradient_accumulation_steps", privacy().gradient_accumulation_steps});
    entries.push_back({"planned_steps", number(privacy().target_steps)});
    entries.push_back({"steps_per_epoch", plan.steps_per_epoch});
    entries.push_back({"parameters", mechanism().layout().trainable_parameters()});
    if (corpus_) entries.push_back({"corpus", corpus_->summary(mechanism())});
    return cbor::map(std::move(entries));
  }

  void begin_or_resume() {
    const std::optional<run::Checkpoint> saved = files_.checkpoint(
        *key_, {specification(), mechanism::config_hash(config_), mechanism().layout().hash()});
    run::TracePosition at;
    cbor::Value before = files_.header() ? files_.header()->environment : environment_;
    Bytes state = mechanism().save();
    std::uint64_t t = 0;
    if (saved) {
      const cbor::Value training = cbor::decode(saved->training);
      training_->restore(training.at("state").as_bytes());
      before = training.at("environment");
      if (const cbor::Value* epoch = training.find("lineage_epoch"))
        lineage_epoch_ = epoch->as_unsigned();
      at = saved->trace;
      state = saved->mechanism;
      t = saved->step;
    }
    const std::string differs = environment_difference(before, environment_);
    if (differs.empty()) {
      if (saved) mechanism().restore(state, t);
      use_lineage();
      begin_corpus();
      files_.begin_trace(header(), at);
      return;
    }
    go_on_elsewhere(state, t, at, differs);
  }

  // What comes may differ in its bits from what was, so nothing is repeated.
  void go_on_elsewhere(ByteView state, std::uint64_t t, const run::TracePosition& at,
                       const std::string& differs) {
    const std::uint64_t released = t + files_.steps_after(at);
    mechanism().restore(state, released, /*fresh=*/true);
    // Batches are drawn anew: an event of several steps that is cut at t is charged again whole.
    const std::uint64_t again = released - t + t % mechanism().sampling().steps_per_event();
    const double spent = mechanism().spent().epsilon.upper;
    if (has_claim() && spent > privacy().target_epsilon)
      throw Error(
          ErrorCode::kPrivacyBudgetExceeded, kOperator,
          fmt::format("{}. The {} steps since the last checkpoint or of a cut epoch would be "
                      "charged again, which takes epsilon to {}, above the target {}; go on where "
                      "the run was begun",
                      differs, again, spent, privacy().target_epsilon));
    use_lineage();
    lineage_epoch_ = t / mechanism().sampling().steps_per_epoch;
    begin_corpus();
    std::vector<cbor::Entry> resumed = {
        {"t", t},           {"released", released}, {"charged_again", again},
        {"noise", "fresh"}, {"differs", differs},   {"environment", environment_}};
    if (corpus_) resumed.push_back({"corpus", cbor::map({{"ledger", corpus_->ledger_name()}})});
    files_.extend_trace(at, cbor::map(std::move(resumed)));
    // Before any step: else the charge would be forgotten if this process ended.
    write_checkpoint();
    notes_.push_back(
        fmt::format("what the run was begun with is not what it goes on with ({}): {} steps were "
                    "charged again, and the run can no longer be replayed",
                    differs, again));
  }

  void use_lineage() {
    const std::string lineage = mechanism().lineage();
    if (!lineage.empty())
      training_->sampler =
          mechanism::Sampler(mechanism().sampling(), data_.train.rows, streams_->sampling(lineage));
  }

  void write_checkpoint() {
    std::vector<cbor::Entry> training = {{"environment", environment_},
                                         {"state", training_->save()}};
    if (lineage_epoch_ != 0) training.push_back({"lineage_epoch", lineage_epoch_});
    files_.write_checkpoint({specification(),
                             mechanism::config_hash(config_),
                             mechanism().layout().hash(),
                             mechanism().t(),
                             {},
                             mechanism().save(),
                             cbor::encode(cbor::map(std::move(training)))},
                            *key_);
  }

  // ---- the steps

  Ended loop(std::chrono::steady_clock::time_point begin) {
    const std::uint64_t first = mechanism().t();
    const std::optional<std::uint64_t> planned = privacy().target_steps;
    while (!planned || mechanism().t() < *planned) {
      if (options_.stop != nullptr && *options_.stop) return Ended::kInterrupted;
      try {
        const StepReport report = step(*training_, files_, [this] { write_checkpoint(); });
        note_projection(report.released);
        if (options_.progress) options_.progress(progress(report, first, begin));
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kPrivacyBudgetExceeded && mechanism().t() > 0)
          return Ended::kBudgetReached;
        if (is_of_the_mechanism(error.code())) {
          files_.append("failure", mechanism().emit_error(error).to_cbor());
          files_.flush();
        }
        if (mechanism().t() == 0) files_.remove_if_new();
        throw;
      }
    }
    return Ended::kCompleted;
  }

  void note_projection(const mechanism::StepResult& released) {
    projected_.reset();
    if (released.metrics.scaling_law_confidence == 1)
      projected_ = released.metrics.projected_final_epsilon;
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

  std::optional<accounting::Interval> claim(Ended ended) {
    if (!has_claim()) return std::nullopt;
    const cbor::Value spent = mechanism().trace_end().at("final_epsilon");
    accounting::Interval out{spent.at("lower").as_float(), spent.at("upper").as_float()};
    if (ended != Ended::kInterrupted) return out;
    // Who stopped it may have looked: what holds is what the plan would have spent.
    const bool fixed =
        !privacy().warmup.clip_norm && !privacy().main.clip_norm && !privacy().cooldown.clip_norm;
    out.upper = projected_ && fixed ? std::max(out.upper, *projected_) : privacy().target_epsilon;
    out.upper = std::min(out.upper, privacy().target_epsilon);
    return out;
  }

  RunResult finish(Ended ended) {
    RunResult out;
    out.directory = files_.directory();
    out.ended = ended;
    out.steps = mechanism().t();
    out.planned = privacy().target_steps;
    out.delta = privacy().target_delta;
    out.adjacency = privacy().adjacency;
    out.not_private = mechanism().not_private();
    out.notes = notes_;
    out.epsilon = claim(ended);
    if (data_.test) {
      const Score held_out =
          score(training_->network, training_->model(), *data_.test, options_.threads);
      out.accuracy = held_out.accuracy;
      if (std::isfinite(held_out.loss)) out.loss = held_out.loss;
    }
    write_checkpoint();
    // Names of columns are declared; nothing here is of the records.
    std::map<std::string, std::string> about{
        {"producer", fmt::format("discreet {}", version())},
        {"config_hash", to_hex(mechanism::config_hash(config_))}};
    if (!features_.empty())
      about["features"] = to_json(cbor::array({features_.begin(), features_.end()}));
    files_.write_model(encode_safetensors(training_->network.layout(), training_->model(), about));
    files_.append("run_end", end_line(out));
    files_.flush();
    return out;
  }

  cbor::Value end_line(const RunResult& result) {
    const auto number = [](const auto& x) { return x ? cbor::Value(*x) : nullptr; };
    std::vector<cbor::Entry> entries = mechanism().trace_end().as_map();
    entries.push_back({"epsilon", result.epsilon ? cbor::map({{"lower", result.epsilon->lower},
                                                              {"upper", result.epsilon->upper}})
                                                 : nullptr});
    entries.push_back({"steps", result.steps});
    entries.push_back({"planned_steps", number(result.planned)});
    entries.push_back({"ended", to_string(result.ended)});
    entries.push_back({"accuracy", number(result.accuracy)});
    entries.push_back({"loss", number(result.loss)});
    return cbor::map(std::move(entries));
  }

  const Config& config_;
  const TrainOptions& options_;
  RunFiles files_;
  const cbor::Value environment_ = environment();
  Data data_;
  Digest commitment_{};
  std::optional<random::Key> key_;  // of run_key()
  std::optional<RunStreams> streams_;
  std::optional<Corpus> corpus_;
  std::optional<Training> training_;
  std::uint64_t lineage_epoch_ = 0;    // in which the lineage began
  std::optional<double> projected_;    // epsilon at the planned end, where nothing can change it
  std::vector<std::string> features_;  // csv: the names of the columns, in their order
  std::vector<std::string> notes_;
};

}  // namespace

std::string_view to_string(Ended ended) noexcept {
  switch (ended) {
    case Ended::kCompleted: return "completed";
    case Ended::kBudgetReached: return "budget_reached";
    case Ended::kInterrupted: return "interrupted";
  }
  return "";
}

RunResult train(const Config& resolved, const TrainOptions& options) {
  return Run(resolved, options).train();
}

mechanism::LoadedConfig load_training_config(std::string_view yaml, std::string_view name,
                                             std::span<const std::string> settings,
                                             const std::filesystem::path& relative_to) {
  std::vector<std::string> all(settings.begin(), settings.end());
  if (!mechanism::read_config(yaml, name, settings)
           .where.contains("security.differential_privacy.nonfinite"))
    all.emplace_back("nonfinite=zero");
  mechanism::LoadedConfig out = mechanism::load_config(yaml, name, all);
  for (auto* path :
       {&out.config.data.train, &out.config.data.train_labels, &out.config.data.test,
        &out.config.data.test_labels, &out.config.corpus.policy, &out.config.corpus.descriptors,
        &out.config.corpus.uses, &out.config.corpus.ledger, &out.config.corpus.ledger_key,
        &out.config.corpus.statements, &out.config.corpus.withdrawn})
    if (*path) *path = std::filesystem::absolute(relative_to / **path).lexically_normal().string();
  mechanism::CorpusConfig& corpus = out.config.corpus;
  if (corpus.policy && !corpus.ledger)
    corpus.ledger = (std::filesystem::path(*corpus.policy).parent_path() / "ledger.db").string();
  return out;
}

}  // namespace discreet::training
