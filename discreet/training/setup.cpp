#include "discreet/training/setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/config/prevalidation.h"
#include "discreet/data/features.h"
#include "discreet/data/private_bounds.h"
#include "discreet/training/advice.h"
#include "discreet/training/model.h"

namespace discreet::training {
namespace {

constexpr const char* kOperator = "train";

Digest digest_of(const data::Data& data) {
  Sha256 hash;
  hash.update(data.train.digest);
  if (data.test) hash.update(data.test->digest);
  return hash.finish();
}

OptimizerOptions optimizer_options(const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  return {o.kind,           o.rate,
          o.momentum,       o.beta1,
          o.beta2,          o.floor,
          o.floor_is_noise, o.weight_decay,
          o.schedule,       config.privacy.target_steps.value_or(0),
          o.average};
}

// The first record only: what the shape of the model follows from.
void keep_one(data::Dataset& data) {
  data.rows = std::min<std::size_t>(data.rows, 1);
  data.x.resize(data.rows * data.features);
  if (!data.label.empty()) data.label.resize(data.rows);
  if (!data.target.empty()) data.target.resize(data.rows);
}

}  // namespace

Setup::Setup(const Config& resolved, const SetupOptions& options)
    : config_(resolved), options_(options) {
  if (!privacy().target_steps && !privacy().enabled)
    invalid_config(
        kOperator,
        "a run without privacy ends only by its number of steps; set run.epochs or target_steps");
  open_data();
  open_corpus();
  build();
  forecast = training->mechanism.forecast();
  if (forecast.failure && !(forecast.is_ended_by_budget() && forecast.steps > 0))
    throw *forecast.failure;
  std::ranges::move(
      advice(config_, training->mechanism.layout().trainable_parameters(), forecast.steps),
      std::back_inserter(notes));
  warnings = confidential_advice(config_, data, rows);
}

void Setup::open_data() {
  const std::optional<random::Generator> bounds_noise = bounds_stream();
  data = data::open_data(config_, {}, options_.on_bad_row, bounds_noise ? &*bounds_noise : nullptr,
                         options_.plan_only, options_.arrays);
  notes = data.notes;
  rows = data.train.rows;
  const Digest digest = digest_of(data);
  commitment = run::data_commitment(digest, options_.secret);
  key = run::run_key(options_.secret, config_, digest);
  if (options_.require_data) options_.require_data(commitment);
  // Beyond N0, batches larger than most_records() are not a rare event (apply.md).
  if (privacy().declared_size && rows > *privacy().declared_size)
    invalid_config(
        kOperator,
        "declared_size is {}, but there are {} records; declare at least as many as there may be",
        *privacy().declared_size, rows);
}

void Setup::open_corpus() {
  if (!config_.corpus.policy || options_.policy != nullptr) return;
  if (!privacy().target_steps)
    invalid_config(kOperator, "a corpus needs planned steps: set run.epochs or target_steps");
  // Its ledger would state an epsilon that does not hold. Replay writes none.
  if (const auto reasons = not_private_reasons(privacy()); !reasons.empty() && !options_.again)
    invalid_config(kOperator,
                   "contributions were promised noise, and the run is not private ({}); train on "
                   "contributions without debug, heuristic accounting or --insecure-seed",
                   reasons.front());
  const Corpus::Writes writes = options_.plan_only ? Corpus::Writes::kNothing
                                : options_.again   ? Corpus::Writes::kUses
                                                   : Corpus::Writes::kAll;
  corpus.emplace(config_, data.train, options_.threads, ledger_run({}), options_.ledger_note,
                 writes);
  notes.push_back(corpus->sentence());
  rows = data.train.rows;
}

void Setup::build() {
  if (config_.data.format == DataFormat::kCsv) features = data.train.feature_names;
  if (options_.plan_only) {
    keep_one(data.train);
    if (data.test) keep_one(*data.test);
  }
  map_features(config_, data.train, options_.threads);
  if (data.test) map_features(config_, *data.test, options_.threads);
  streams = run::run_streams(privacy(), run::in_environment(*key, options_.environment),
                             options_.generator);
  Network network(shape_of(config_.model, data.train.features, data.train.classes),
                  public_key(privacy()));
  std::optional<mechanism::Routes> routes;
  if (corpus) {
    corpus->resolve(network.layout().with_public(privacy().public_modules, privacy().public_groups),
                    mechanism::plan_sampling(privacy()));
    routes = corpus->routes();
  } else if (options_.policy != nullptr) {
    routes = routes_of_policy(
        network.layout().with_public(privacy().public_modules, privacy().public_groups));
  }
  mechanism::Mechanism mechanism(config_, network.layout(), streams->mechanism(),
                                 mechanism::kernel_replay_token(config_, commitment),
                                 options_.threads, 1, data.before, std::move(routes));
  if (!options_.again && !options_.resumes) mechanism.require_start();
  if (corpus) corpus->require_room(mechanism);
  mechanism::Sampler sampler(mechanism.sampling(), rows, streams->sampling({}));
  Optimizer optimizer(optimizer_options(config_), mechanism.layout());
  training.emplace(Training{config_,
                            data.train,
                            data.test ? &*data.test : nullptr,
                            std::move(network),
                            std::move(optimizer),
                            std::move(sampler),
                            std::move(mechanism),
                            {},
                            options_.threads,
                            privacy().target_steps,
                            corpus ? &*corpus : nullptr});
}

mechanism::Routes Setup::routes_of_policy(const ModelLayout& layout) {
  const admission::UseNoise noise{privacy().noise_family, privacy().noise_discrete.value_or(0)};
  mechanism::Routes out;
  out.injection = config_.corpus.injection;
  for (const auto& [name, own] : options_.policy->classes) {
    require_sampler(own, name, mechanism::plan_sampling(privacy()));
    admission::Descriptor bounds;
    bounds.data_class = name;
    bounds.clip_norm = own.clip_norm;
    bounds.noise_multiplier = own.noise_multiplier;
    bounds.occurrences = own.most_occurrences;
    if (own.amplified) {
      bounds.promise = admission::Promise::kAmplified;
      bounds.occurrences = std::max(bounds.occurrences, own.amplified->steps);
    }
    admission::Resolution resolution = admission::resolve(*options_.policy, bounds, layout, noise);
    out.plans.push_back(resolution.plan);
    classes.push_back({std::move(bounds), std::move(resolution), own.amplified.has_value()});
  }
  return out;
}

Digest Setup::identity(std::string_view purpose, const std::string& lineage) const {
  const random::Key own = run::in_environment(*key, options_.environment);
  return Sha256().update(own.derive(purpose).secret_bytes()).update(bytes_of(lineage)).finish();
}

std::string Setup::ledger_run(const std::string& lineage) const {
  return to_hex(ByteView(identity("ledger", lineage)).first(16));
}

// The stream of the bounds that are released before training. It is derived from the file or the
// arrays as they are, because no record is read yet.
std::optional<random::Generator> Setup::bounds_stream() const {
  if (config_.data.private_bounds.empty()) return std::nullopt;
  if (options_.arrays == nullptr && !config_.data.train) return std::nullopt;
  const Digest source = options_.arrays != nullptr ? data::digest_of(options_.arrays->train)
                                                   : sha256_of_file(*config_.data.train);
  return data::private_bounds_stream(privacy(), run::run_key(options_.secret, config_, source));
}

}  // namespace discreet::training
