#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/contributions.h"
#include "cli/deletion_receipt.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "cli/unlearn/unlearn_experiment.h"
#include "cli/unlearn/unlearn_rows.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/unlearning/service/service.h"
#include "discreet/unlearning/service/verification.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "unlearn", sentence);
}

struct Options {
  std::string store, data, request, key, passphrase_file;
  RowNames names;
  bool json = false;
  // init
  std::string name = "model", engine = "exact", loss, accounting = "zcdp", guarantee, ledger;
  std::string dimension, lambda = "0.001", records = "50000", most, norm = "1", label_bound = "1",
                         bits = "20", tolerance = "1e-9", tau = "1e-9", sigma = "0.001",
                         epsilon = "1", delta = "1e-5", gamma_learn = "0.1", gamma_priv = "2",
                         radius = "1", gradient = "1", events = "100000", calibration = "500",
                         quantile = "0.95", D_cap, delta_B = "0.05";
  // insert
  bool reinsert = false;
  // delete
  std::vector<std::string> subjects;
  std::string subjects_file, withdrawal, receipts;
  // verify
  std::string forgotten, test, runs = "2000";
};

fs::path model_file(const Options& o) { return fs::path(o.store) / "model.db"; }

// Where the ledger is, and its key: in the store's folder, or where `init` was told.
struct Places {
  std::string ledger, key;
};
Places places(const Options& o) {
  const fs::path folder = o.store;
  Places found{(folder / "ledger.db").string(), (folder / "ledger.key").string()};
  if (fs::exists(folder / "settings.json")) {
    try {
      const json settings = read_json(read_input((folder / "settings.json").string()));
      found = {settings.at("ledger").get<std::string>(), settings.at("key").get<std::string>()};
    } catch (const json::exception&) {
      refuse(fmt::format("{}/settings.json is not what 'init' wrote", o.store));
    }
  }
  if (!o.key.empty()) found.key = o.key;
  return found;
}

ledger::Ledger open_ledger(const Options& o) {
  const Places at = places(o);
  return ledger::Ledger::open(at.ledger, read_key(at.key, o.passphrase_file));
}

// Compared with the ledger on every open. A journal there is a killed writer's: the key's holder
// rolls it back first.
Service open_service(const Options& o) {
  const Places at = places(o);
  if (fs::exists(at.ledger + "-journal")) open_ledger(o);
  return Service(model_file(o), at.ledger);
}

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

EngineOptions engine_options(const Options& o) {
  if (o.dimension.empty()) refuse("--dimension is missing: how many features a record has");
  const std::size_t d = parse_count("--dimension", o.dimension);
  const std::uint64_t N = parse_count("--records", o.records);
  const std::uint64_t most = o.most.empty() ? 2 * N : parse_count("--most-records", o.most);
  const auto loss = one_of<Loss>(
      "--loss", o.loss.empty() ? (o.engine == "exact" ? "squared" : "logistic") : o.loss,
      {{"squared", Loss::kSquared}, {"logistic", Loss::kLogistic}});
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
  if (o.ledger.empty() != o.key.empty()) refuse("--ledger and --key go together");
  const EngineOptions options = engine_options(o);
  const fs::path folder = o.store;
  if (fs::exists(folder)) refuse(fmt::format("'{}' exists; choose another place", o.store));
  std::error_code failed;
  fs::create_directory(folder, failed);
  if (failed) {
    throw Error(ErrorCode::kIoError, "unlearn",
                fmt::format("'{}' cannot be made: {}", o.store, failed.message()));
  }
  try {
    fs::permissions(folder, fs::perms::owner_all);
    Service::create(model_file(o), o.name, options);
    if (o.ledger.empty()) {
      make_ledger(o, folder);
    } else {
      const json settings = {{"ledger", fs::absolute(o.ledger).string()},
                             {"key", fs::absolute(o.key).string()}};
      write_atomically(folder / "settings.json", bytes_of(settings.dump(2) + "\n"));
      open_ledger(o);  // verifies it
    }
  } catch (...) {
    fs::remove_all(folder, failed);
    throw;
  }
  const auto status = open_service(o).status();
  if (o.json)
    print("{}\n",
          json{{"store", o.store}, {"engine", o.engine}, {"guarantee", status.guarantee}}.dump());
  else
    print("{}: a model '{}' ({}, {}), empty; next: discreet unlearn insert {} records.csv\n",
          o.store, o.name, o.engine, status.guarantee, o.store);
}

void insert(const Options& o) {
  const auto rows = read_rows(o.data, o.names);
  if (rows.empty()) refuse(fmt::format("'{}' has no records", o.data));
  const std::string request =
      o.request.empty() ? "file-" + to_hex(sha256(bytes_of(read_input(o.data)))) : o.request;
  Service service = open_service(o);
  const std::uint64_t fresh = service.insert(
      request, rows, o.reinsert ? Service::Reinsert::kAllow : Service::Reinsert::kRefuse);
  const ServiceStatus status = service.status();
  if (o.json)
    print("{}\n", json{{"request", request},
                       {"inserted", fresh},
                       {"already_there", rows.size() - fresh},
                       {"live", status.live}}
                      .dump());
  else
    print("{} records inserted, {} were there; {} are live\n", fresh, rows.size() - fresh,
          status.live);
}

Digest digest_of(const std::string& hex) {
  const Bytes bytes = from_hex(hex);
  Digest digest;
  if (bytes.size() != digest.size()) refuse("a descriptor's hash is 64 hexadecimal digits");
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

void erase(const Options& o) {
  std::vector<std::string> subjects = o.subjects;
  if (!o.subjects_file.empty()) {
    const auto more = read_subjects(o.subjects_file);
    subjects.insert(subjects.end(), more.begin(), more.end());
  }
  if (subjects.empty()) refuse("say whose records: --subject NAME, or --subjects FILE");
  std::optional<Digest> withdrawal;
  if (!o.withdrawal.empty()) withdrawal = digest_of(o.withdrawal);
  const std::string request =
      o.request.empty() ? "delete-" + to_hex(random::Key::from_system().secret_bytes().first(16))
                        : o.request;
  Service service = open_service(o);
  auto ledger = open_ledger(o);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const std::uint64_t generation = service.status().generation;
  const auto receipts =
      service.erase(request, subjects, ledger, static_cast<std::uint64_t>(now), withdrawal);
  std::vector<Bytes> leaves;
  for (const auto& receipt : receipts) leaves.push_back(ledger::encode(receipt.entry));
  const auto placed = ledger.receipts(leaves);
  json list = json::array();
  std::string lines;
  for (std::size_t i = 0; i < receipts.size(); ++i) {
    list.push_back(deletion_receipt(receipts[i], subjects[i], placed[i], ledger));
    lines += list.back().dump() + "\n";
  }
  if (!o.receipts.empty()) append_lines(o.receipts, lines, Access::kOwner);
  const ServiceStatus status = service.status();
  const bool retrained = status.generation != generation;
  if (o.json) {
    print("{}\n", json{{"request", request},
                       {"deleted", receipts.size()},
                       {"retrained", retrained},
                       {"live", status.live},
                       {"published", status.published},
                       {"receipts", list}}
                      .dump());
    return;
  }
  for (std::size_t i = 0; i < receipts.size(); ++i)
    print("{}: {} records deleted, {}, entry {} of {}\n", subjects[i], receipts[i].records.size(),
          list[i]["guarantee"].get<std::string>(), placed[i].position,
          ledger.state().header().origin);
  if (retrained) print("the budget did not reach: the model was retrained without them\n");
  if (!status.published)
    print("nothing is served now; next: discreet unlearn publish {}\n", o.store);
}

void predict(const Options& o) {
  const auto rows = read_rows(o.data, o.names, false);
  const Service service = open_service(o);
  json values = json::array();
  bool ready = true;
  for (const Row& row : rows) {
    const Prediction p = service.predict(row.x);
    values.push_back(p.value);
    ready = p.ready;
  }
  if (o.json) {
    print("{}\n", json{{"predictions", values}, {"ready_to_predict", ready}}.dump());
    return;
  }
  for (const auto& value : values) print("{}\n", value.dump());
  if (!ready)
    print(stderr, "the model has seen fewer records than its regret target asks for (N*)\n");
}

void status(const Options& o) {
  const ServiceStatus s = open_service(o).status();
  if (o.json) {
    json metrics = json::object();
    for (const auto& [name, value] : s.metrics) metrics[name] = metric_json(value);
    print("{}\n", json{{"model", s.model},
                       {"engine", s.engine},
                       {"guarantee", s.guarantee},
                       {"live", s.live},
                       {"deletions", s.deletions},
                       {"receipts_to_confirm", s.unconfirmed},
                       {"generation", s.generation},
                       {"published", s.published},
                       {"deletes_left", s.deletes_left ? json(*s.deletes_left) : json()},
                       {"releases_left", s.releases_left ? json(*s.releases_left) : json()},
                       {"epsilon_total", s.eps_total},
                       {"delta_total", s.delta_total},
                       {"epsilon_spent", s.eps_spent},
                       {"warnings", s.warnings},
                       {"state", to_hex(s.state)},
                       {"metrics", metrics}}
                      .dump());
    return;
  }
  print("model       {} ({}), {}\n", s.model, s.engine, s.guarantee);
  print("records     {} live, {} deletions, generation {}\n", s.live, s.deletions, s.generation);
  if (s.eps_total > 0)
    print("budget      epsilon {} of {} at delta {}\n", round_up(s.eps_spent), s.eps_total,
          s.delta_total);
  if (s.deletes_left) print("capacity    {} deletes, then a retrain\n", *s.deletes_left);
  if (s.releases_left) print("capacity    {} releases, then a retrain\n", *s.releases_left);
  if (const auto phase = s.metrics.find("phase"); phase != s.metrics.end())
    print("phase       {}\n", std::get<std::string>(phase->second));
  print("served      {}\n", s.published ? "the last publication" : "nothing: publish first");
  if (s.unconfirmed > 0)
    print("receipts    {} may be missing in the ledger; the next delete writes them\n",
          s.unconfirmed);
  print("state       {} (confidential)\n", to_hex(s.state));
  for (const std::string& warning : s.warnings) print("warning: {}\n", warning);
}

void publish(const Options& o) {
  Service service = open_service(o);
  const Release release = service.publish();
  const ServiceStatus s = service.status();
  if (o.json)
    print("{}\n", json{{"parameters", release.parameters},
                       {"sigma", release.sigma},
                       {"residual_bound", release.residual_bound},
                       {"guarantee", release.guarantee},
                       {"generation", s.generation},
                       {"releases_left", s.releases_left ? json(*s.releases_left) : json()}}
                      .dump());
  else
    print("published: {} parameters, noise {}, {}\n", release.parameters.size(), release.sigma,
          release.guarantee);
}

void retrain(const Options& o) {
  Service service = open_service(o);
  service.retrain();
  const ServiceStatus s = service.status();
  if (o.json)
    print("{}\n", json{{"generation", s.generation}, {"live", s.live}}.dump());
  else
    print("retrained from its beginning over {} records: generation {}\n", s.live, s.generation);
}

json scores_json(const std::optional<Scores>& scores) {
  if (!scores) return nullptr;
  return {
      {"measure", scores->measure}, {"served", scores->served}, {"retrained", scores->retrained}};
}

int verify_store(const Options& o) {
  VerificationOptions options;
  if (!o.forgotten.empty()) options.forgotten = read_rows(o.forgotten, o.names);
  if (!o.test.empty()) options.test = read_rows(o.test, o.names);
  options.attack_runs = parse_count("--runs", o.runs);
  Service service = open_service(o);
  const Verification v = verify(service, options);
  const json epsilon = v.epsilon_certified ? json(*v.epsilon_certified) : json();
  if (o.json) {
    print("{}\n", json{{"holds", v.holds},
                       {"distance", v.distance},
                       {"bound", v.bound ? json(*v.bound) : json()},
                       {"ratio", v.bound ? json(v.distance / *v.bound) : json()},
                       {"same_state", v.same_state ? json(*v.same_state) : json()},
                       {"disagreement", v.disagreement},
                       {"retained", scores_json(v.retained)},
                       {"forgotten", scores_json(v.forgotten)},
                       {"test", scores_json(v.test)},
                       {"epsilon_lower_bound", v.epsilon_lower_bound},
                       {"epsilon_certified", epsilon},
                       {"control_lower_bound", v.control_lower_bound},
                       {"confidence", options.confidence},
                       {"notes", v.notes}}
                      .dump());
  } else {
    print("{}\n", v.holds ? "HOLDS" : "BROKEN");
    if (v.same_state)
      print("  state          {} that of the live records\n", *v.same_state ? "is" : "IS NOT");
    if (v.bound)
      print("  distance       {:.3g} of {} certified (ratio {:.3g})\n", v.distance,
            brief_up(*v.bound), v.distance / *v.bound);
    print("  disagreement   {:.4f} of predictions, against retraining\n", v.disagreement);
    for (const auto& [name, s] :
         {std::pair{"retained", &v.retained}, {"forgotten", &v.forgotten}, {"test", &v.test}})
      if (*s)
        print("  {:<14} {} {:.4f}, retrained {:.4f}\n", name, (*s)->measure, (*s)->served,
              (*s)->retrained);
    print("  attack         proves epsilon >= {} ({}% confidence); certified {}\n",
          round_down(v.epsilon_lower_bound, 3), 100 * options.confidence, epsilon.dump());
    print("  control        noise skipped, record kept: proves epsilon >= {}\n",
          round_down(v.control_lower_bound, 3));
    for (const std::string& note : v.notes) print("  note           {}\n", note);
    print("  these numbers depend on the records: confidential\n");
  }
  return v.holds ? kDone : kCheckSaysNo;
}

void add_init_options(CLI::App& sub, Options& o) {
  const auto add = [&](const char* name, std::string& value, const char* help) {
    auto* option = sub.add_option(name, value, help);
    if (!value.empty()) option->capture_default_str();
  };
  add("--name", o.name, "Public name of the model, in every receipt");
  add("--engine", o.engine, "exact (ridge), erm (logistic, ridge), stream (online)");
  add("--dimension", o.dimension, "Features of a record");
  add("--loss", o.loss, "squared or logistic (labels -1 and 1); exact: squared");
  add("--records", o.records, "exact, erm: public divisor of the loss; never the row count");
  add("--most-records", o.most, "exact, erm: most live records; twice --records if left out");
  add("--lambda", o.lambda, "Regularisation");
  add("--norm", o.norm, "Records are scaled to at most this norm");
  add("--label-bound", o.label_bound, "Labels are clamped to this (squared loss)");
  add("--bits", o.bits, "exact: features are multiples of 2^-bits");
  add("--tolerance", o.tolerance, "exact: distance of a release from the exact solution");
  add("--tau", o.tau, "erm: gradient norm to which releases are solved");
  add("--sigma", o.sigma, "erm: noise of a release");
  add("--epsilon", o.epsilon, "erm, stream: budget");
  add("--delta", o.delta, "erm, stream: budget");
  add("--accounting", o.accounting, "erm, stream: zcdp, rdp, gdp; stream: specification");
  add("--guarantee", o.guarantee, "per-record, set-level; erm: transcript");
  add("--gamma-learn", o.gamma_learn, "stream: average regret that N* aims at");
  add("--gamma-priv", o.gamma_priv, "stream: average regret that the capacity aims at");
  add("--events", o.events, "stream: planned events T");
  add("--gradient", o.gradient, "stream: bound of a record's gradient, enforced");
  add("--radius", o.radius, "stream: radius of the parameters' ball, enforced");
  add("--calibration", o.calibration, "stream: inserts before calibration ends");
  add("--quantile", o.quantile, "stream, specification: of the gradient norms");
  add("--d-cap", o.D_cap, "stream, specification: largest D");
  add("--delta-b", o.delta_B, "stream, specification: failure probability of regret");
  add("--ledger", o.ledger, "Record deletions here; a ledger of its own if left out");
  add("--key", o.key, "Private key of that ledger");
}

}  // namespace

void add_unlearn(CLI::App& command, int& status_out) {
  auto options = std::make_shared<Options>();
  command.require_subcommand(1);
  const auto add = [&](const char* name, const char* summary, const char* example) {
    CLI::App* sub = command.add_subcommand(name, summary);
    sub->footer(fmt::format("Example:\n  {}", example));
    sub->add_option("STORE", options->store, "The model's folder")->required();
    sub->add_flag("--json", options->json, "Print one JSON object");
    return sub;
  };
  const auto add_data = [&](CLI::App* sub, const char* help) {
    sub->add_option("DATA", options->data, help)->required();
    sub->add_option("--subject-column", options->names.subject, "CSV: whose record it is")
        ->capture_default_str();
    sub->add_option("--label-column", options->names.label, "CSV: the label")
        ->capture_default_str();
  };
  const auto add_key = [&](CLI::App* sub) {
    sub->add_option("--key", options->key, "The ledger's private key, if it was moved");
    sub->add_option("--passphrase-file", options->passphrase_file, "Its first line opens the key");
  };

  CLI::App* sub = add("init", "Make an empty model in a new folder.",
                      "discreet unlearn init churn --engine exact --dimension 54\n"
                      "  discreet unlearn init churn --engine erm --dimension 54 --epsilon 1 "
                      "--guarantee set-level\n"
                      "  discreet unlearn init churn --engine stream --dimension 54 --ledger "
                      "ledger.db --key ledger.key");
  add_init_options(*sub, *options);
  sub->add_option("--passphrase-file", options->passphrase_file, "Its first line opens the key");
  sub->callback([options] { init(*options); });

  sub = add("insert", "Insert records; a file that was inserted is not inserted again.",
            "discreet unlearn insert churn records.csv --subject-column customer\n"
            "  discreet unlearn insert churn day-17.jsonl --request day-17");
  add_data(sub, "Records: CSV, or JSON lines {\"subject\", \"x\", \"y\"}");
  sub->add_option("--request", options->request,
                  "Name of this request; given again it is done once. Default: the file's hash");
  sub->add_flag("--reinsert", options->reinsert,
                "Allow subjects that were deleted: they asked to take part again");
  sub->callback([options] { insert(*options); });

  sub = add("delete", "Delete all records of subjects, with a signed receipt for each.",
            "discreet unlearn delete churn --subject alice --receipts receipts.jsonl\n"
            "  discreet unlearn delete churn --subjects leavers.txt --request leavers-may\n"
            "  discreet unlearn delete churn --subject alice --withdrawal 3fa9…");
  sub->add_option("--subject", options->subjects, "Whose records; may be repeated");
  sub->add_option("--subjects", options->subjects_file, "File, one subject a line: one batch");
  sub->add_option("--request", options->request,
                  "Name of this request; given again it is done once");
  sub->add_option("--withdrawal", options->withdrawal,
                  "Descriptor hash whose withdrawal in the ledger asked for it");
  sub->add_option("--receipts", options->receipts, "Put receipts at the end of this file");
  add_key(sub);
  sub->callback([options] { erase(*options); });

  sub = add("predict", "Predictions of the last publication, one line per record.",
            "discreet unlearn predict churn new.csv");
  add_data(sub, "Records, without subject and label if you like");
  sub->callback([options] { predict(*options); });

  sub = add("status", "What the model holds, promises and has left.",
            "discreet unlearn status churn --json");
  sub->callback([options] { status(*options); });

  sub = add("publish", "Serve predictions from the present model from now on.",
            "discreet unlearn publish churn --json > model.json");
  sub->callback([options] { publish(*options); });

  sub = add("verify", "Retrain copies and attack them: does what is certified hold?",
            "discreet unlearn verify churn --test test.csv --forgotten leavers.csv");
  sub->add_option("--forgotten", options->forgotten, "Records that were deleted");
  sub->add_option("--test", options->test, "Records the model never saw");
  sub->add_option("--runs", options->runs, "Runs of the attack, of each kind")
      ->capture_default_str();
  sub->add_option("--subject-column", options->names.subject, "CSV: whose record it is")
      ->capture_default_str();
  sub->add_option("--label-column", options->names.label, "CSV: the label")->capture_default_str();
  sub->callback([options, &status_out] { status_out = verify_store(*options); });

  sub = add("retrain", "Train anew over the live records: a new generation.",
            "discreet unlearn retrain churn");
  sub->callback([options] { retrain(*options); });

  add_unlearn_experiment(command);
}

}  // namespace discreet::cli
