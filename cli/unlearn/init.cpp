#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/unlearning/service/declared_rows.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "unlearn", sentence);
}

struct Options {
  UnlearnStore store;
  std::string name = "model", engine = "exact", loss, accounting = "zcdp", guarantee, ledger,
              config;
  std::string dimension, lambda = "0.001", records = "50000", most, norm = "1", label_bound = "1",
                         bits = "20", tolerance = "1e-9", tau = "1e-9", sigma = "0.001",
                         epsilon = "1", delta = "1e-5", gamma_learn = "0.1", gamma_priv = "2",
                         radius = "1", gradient = "1", events = "100000", calibration = "500",
                         quantile = "0.95", D_cap, delta_B = "0.05";
  bool intercept = false, json = false;
};

template <class E>
E one_of(const char* option, const std::string& text,
         std::initializer_list<std::pair<const char*, E>> known) {
  std::string names;
  for (const auto& [name, value] : known) {
    if (text == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  refuse(fmt::format("{} is '{}'; choose one of {}", option, text, names));
}

double number(const char* option, const std::string& text) { return parse_number(option, text); }

Guarantee guarantee_of(const Options& o) {
  return one_of<Guarantee>("--guarantee", o.guarantee.empty() ? "per-record" : o.guarantee,
                           {{"per-record", Guarantee::kPerRecord},
                            {"set-level", Guarantee::kSetLevel},
                            {"transcript", Guarantee::kTranscript}});
}

RecordForm form_of(const Options& o) {
  RecordForm form;
  if (!o.config.empty()) form.columns = declared_columns(read_config_file(o.config), o.config);
  form.intercept = o.intercept || form.columns;
  require_sound(form);
  return form;
}

std::size_t dimension_of(const Options& o, const RecordForm& form) {
  if (!form.columns && o.dimension.empty())
    refuse("give --dimension, the number of features, or --config, which declares the columns");
  const std::size_t features =
      form.columns ? feature_names(*form.columns).size() : parse_count("--dimension", o.dimension);
  return features + (form.intercept ? 1 : 0);
}

EngineOptions engine_options(const Options& o, const RecordForm& form) {
  const std::size_t d = dimension_of(o, form);
  const std::uint64_t N = parse_count("--records", o.records);
  const std::uint64_t most = o.most.empty() ? 2 * N : parse_count("--most-records", o.most);
  const auto loss = one_of<Loss>(
      "--loss", o.loss.empty() ? (o.engine == "exact" ? "squared" : "logistic") : o.loss,
      {{"squared", Loss::kSquared}, {"logistic", Loss::kLogistic}});
  if (loss == Loss::kLogistic && form.columns && form.columns->label.classes.empty())
    refuse(
        "the logistic loss needs data.classes with two classes; for a number use --loss squared");
  const auto accounting = one_of<Accounting>("--accounting", o.accounting,
                                             {{"specification", Accounting::kSpecification},
                                              {"zcdp", Accounting::kZcdp},
                                              {"rdp", Accounting::kRdp},
                                              {"gdp", Accounting::kGdp}});
  if (o.engine == "exact") {
    if (loss != Loss::kSquared) refuse("the exact engine is ridge regression: --loss squared");
    ExactOptions e;
    e.dimension = d;
    e.R = number("--norm", o.norm);
    e.Y = number("--label-bound", o.label_bound);
    e.bits = static_cast<int>(std::min<std::uint64_t>(1000, parse_count("--bits", o.bits)));
    e.lambda = number("--lambda", o.lambda);
    e.N = N;
    e.n_max = most;
    e.tolerance = number("--tolerance", o.tolerance);
    return e;
  }
  if (o.engine == "erm") {
    ErmOptions e;
    e.loss = loss;
    e.dimension = d;
    e.lambda = number("--lambda", o.lambda);
    e.N = N;
    e.n_max = most;
    e.R = number("--norm", o.norm);
    e.Y = number("--label-bound", o.label_bound);
    e.tau = number("--tau", o.tau);
    e.sigma = number("--sigma", o.sigma);
    e.eps_total = number("--epsilon", o.epsilon);
    e.delta_total = number("--delta", o.delta);
    e.accounting = accounting;
    e.guarantee = guarantee_of(o);
    return e;
  }
  if (o.engine != "stream")
    refuse(fmt::format("--engine is '{}'; choose one of exact, erm, stream", o.engine));
  StreamOptions e;
  e.dimension = d;
  e.loss = loss;
  e.calibration = parse_count("--calibration", o.calibration);
  e.calibrator.quantile = number("--quantile", o.quantile);
  if (!o.D_cap.empty()) e.calibrator.D_cap = number("--d-cap", o.D_cap);
  OdometerOptions& odometer = e.odometer;
  odometer.eps_total = number("--epsilon", o.epsilon);
  odometer.delta_total = number("--delta", o.delta);
  odometer.lambda = number("--lambda", o.lambda);
  odometer.delta_B = number("--delta-b", o.delta_B);
  odometer.T = parse_count("--events", o.events);
  odometer.gamma_learn = number("--gamma-learn", o.gamma_learn);
  odometer.gamma_priv = number("--gamma-priv", o.gamma_priv);
  odometer.accounting = accounting;
  if (accounting != Accounting::kSpecification) odometer.guarantee = guarantee_of(o);
  odometer.enforced = {loss,
                       d,
                       odometer.lambda,
                       number("--gradient", o.gradient),
                       number("--radius", o.radius),
                       number("--norm", o.norm),
                       number("--label-bound", o.label_bound)};
  return e;
}

// A ledger of its own, under a key of its own.
void make_ledger(const Options& o, const fs::path& folder) {
  const auto key = admission::SigningKey::generate();
  write_new(folder / "ledger.key", bytes_of(key.to_pem()), Access::kOwner);
  write_atomically(folder / "ledger.pub", bytes_of(key.public_key().to_pem()));
  ledger::Header header;
  header.origin = "discreet-unlearn/" + o.name;
  header.accountant = "rdp";
  header.delta = 10'000'000'000'000;  // 1e-5; deletions carry their own
  ledger::Ledger::create(
      folder / "ledger.db", header, bytes_of("deletions only"),
      admission::SigningKey::from_pem(text_of(read_secret(folder / "ledger.key"))));
}

void init(const Options& o) {
  if (o.ledger.empty() != o.store.key.empty()) refuse("--ledger and --key go together");
  const RecordForm form = form_of(o);
  const EngineOptions options = engine_options(o, form);
  const fs::path folder = o.store.folder;
  if (fs::exists(folder)) refuse(fmt::format("'{}' exists; choose another place", o.store.folder));
  std::error_code failed;
  // Another process may have created it since; its files are not ours to remove.
  if (!fs::create_directory(folder, failed) && !failed)
    refuse(fmt::format("'{}' exists; choose another place", o.store.folder));
  if (failed) {
    throw Error(ErrorCode::kIoError, "unlearn",
                fmt::format("'{}' cannot be made: {}", o.store.folder, failed.message()));
  }
  try {
    fs::permissions(folder, fs::perms::owner_all);
    Service::create(o.store.model(), o.name, options, form);
    if (o.ledger.empty()) {
      make_ledger(o, folder);
    } else {
      const json settings = {{"ledger", fs::absolute(o.ledger).string()},
                             {"key", fs::absolute(o.store.key).string()}};
      write_atomically(folder / "settings.json", bytes_of(settings.dump(2) + "\n"));
      o.store.open_ledger();  // verifies it
    }
  } catch (...) {
    fs::remove_all(folder, failed);
    throw;
  }
  const auto status = o.store.open_service().status();
  if (o.json)
    print("{}\n",
          json{{"store", o.store.folder}, {"engine", o.engine}, {"guarantee", status.guarantee}}
              .dump());
  else
    print(
        "{}: an empty model '{}', engine {}, deletions {}\nnext: discreet unlearn insert {} "
        "records.csv\n",
        o.store.folder, o.name, o.engine, status.guarantee, o.store.folder);
}

void add_init_options(Command& command, Options& o) {
  const auto add = [&](const char* name, const char* value, std::string& target, const char* help) {
    return &command.option(name, value, target, help);
  };
  add("--name", "NAME", o.name, "Public name of the model, in every receipt");
  add("--engine", "NAME", o.engine,
      "exact for ridge regression, erm for logistic or ridge regression, stream for online "
      "learning")
      ->choices({"exact", "erm", "stream"});
  add("--dimension", "N", o.dimension, "Number of features of a record, without the intercept");
  add("--config", "FILE", o.config,
      "Configuration of 'train' whose section data declares columns, bounds, words and classes, "
      "instead of --dimension; records have an intercept")
      ->excludes({"--dimension"})
      .reads_file();
  command.flag("--intercept", o.intercept, "Give every record a constant, whose weight is learned");
  add("--loss", "NAME", o.loss,
      "Loss; squared if not given for exact, else logistic, with labels -1 and 1")
      ->choices({"squared", "logistic"});
  add("--records", "N", o.records,
      "exact, erm: public divisor of the loss; do not use the row count");
  add("--most-records", "N", o.most,
      "exact, erm: maximum number of live records; twice --records if not given");
  add("--lambda", "X", o.lambda, "Regularisation");
  add("--norm", "X", o.norm, "Norm to which larger records are scaled");
  add("--label-bound", "X", o.label_bound, "Bound to which labels are clamped (squared loss)");
  add("--bits", "N", o.bits, "exact: features are rounded to multiples of 2^-N");
  add("--tolerance", "X", o.tolerance, "exact: distance of a release from the exact solution");
  add("--tau", "X", o.tau, "erm: gradient norm to which releases are solved");
  add("--sigma", "X", o.sigma, "erm: standard deviation of a release's noise");
  add("--epsilon", "EPSILON", o.epsilon, "erm, stream: budget");
  add("--delta", "DELTA", o.delta, "erm, stream: budget");
  add("--accounting", "NAME", o.accounting, "erm, stream: accounting; specification is for stream")
      ->choices({"zcdp", "rdp", "gdp", "specification"});
  add("--guarantee", "NAME", o.guarantee,
      "erm, stream: what is promised; per-record if not given; transcript is for erm")
      ->choices({"per-record", "set-level", "transcript"});
  add("--gamma-learn", "X", o.gamma_learn, "stream: average regret that N* aims at");
  add("--gamma-priv", "X", o.gamma_priv, "stream: average regret that the capacity aims at");
  add("--events", "N", o.events, "stream: planned events T");
  add("--gradient", "X", o.gradient, "stream: bound on a record's gradient, enforced");
  add("--radius", "X", o.radius, "stream: radius of the parameters' ball, enforced");
  add("--calibration", "N", o.calibration, "stream: inserts before calibration ends");
  add("--quantile", "X", o.quantile, "stream, specification: quantile of the gradient norms");
  add("--d-cap", "X", o.D_cap, "stream, specification: largest D");
  add("--delta-b", "X", o.delta_B, "stream, specification: failure probability of regret");
  add("--ledger", "FILE", o.ledger, "Record deletions in this ledger; a new one if not given")
      ->reads_file();
  o.store.add_key_options(command);
}

}  // namespace

void add_unlearn_init(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  add_init_options(command, *o);
  command.json(o->json);
  command.action([o] { init(*o); });
}

}  // namespace discreet::cli
