#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "discreet/base/files.h"
#include "discreet/unlearning/online/drift.h"
#include "discreet/unlearning/service/declared_rows.h"
#include "discreet/unlearning/service/service.h"
#include "discreet/unlearning/service/verification.h"
#include "python/src/array.h"
#include "python/src/columns.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"
#include "python/src/unlearning.h"

namespace discreet::python {

namespace fs = std::filesystem;
using namespace discreet::unlearning;
using namespace nb::literals;

namespace {

using Features = Vector<const double>;
using Labels = Vector<const double>;
using RecordMatrix = Matrix<const double>;

// Keyword arguments, taken one by one; what is left at the end is unknown.
class Options {
 public:
  Options(const char* op, nb::dict given) : op_(op), given_(std::move(given)) {}

  template <class T>
  void take(const char* name, T& value) {
    known_ += (known_.empty() ? "" : ", ") + std::string(name);
    if (!given_.contains(name)) return;
    if (!nb::try_cast(given_[name], value))
      throw Error(ErrorCode::kInvalidInput, op_,
                  fmt::format("{} is {}; it must be a number in its range, or a word", name,
                              nb::repr(given_[name]).c_str()));
    nb::del(given_[name]);
  }
  template <class Enum>
  void take_named(const char* name, Enum& value, std::initializer_list<Enum> all) {
    std::string word(to_string(value));
    take(name, word);
    value = named(name, word, all);
  }
  void take_loss(Loss& loss) { take_named("loss", loss, {Loss::kSquared, Loss::kLogistic}); }
  void take_promise(Accounting& accounting, Guarantee& guarantee) {
    take_named("accounting", accounting,
               {Accounting::kSpecification, Accounting::kZcdp, Accounting::kRdp, Accounting::kGdp});
    take_named("guarantee", guarantee,
               {Guarantee::kPerRecord, Guarantee::kSetLevel, Guarantee::kTranscript});
  }
  void finish() const {
    for (const auto& [name, value] : given_)
      throw Error(ErrorCode::kInvalidInput, op_,
                  fmt::format("unknown option {}; the options are {}", nb::cast<std::string>(name),
                              known_));
  }

 private:
  const char* op_;
  nb::dict given_;
  std::string known_;
};

ExactOptions exact_options(const nb::dict& given) {
  Options options("ExactEngine", given);
  ExactOptions o;
  options.take("dimension", o.dimension);
  options.take("R", o.R);
  options.take("Y", o.Y);
  options.take("bits", o.bits);
  options.take("lambda_", o.lambda);
  options.take("N", o.N);
  options.take("n_max", o.n_max);
  options.take("tolerance", o.tolerance);
  options.finish();
  return o;
}

ErmOptions erm_options(const nb::dict& given) {
  Options options("ErmEngine", given);
  ErmOptions o;
  options.take_loss(o.loss);
  options.take("dimension", o.dimension);
  options.take("lambda_", o.lambda);
  options.take("N", o.N);
  options.take("n_max", o.n_max);
  options.take("R", o.R);
  options.take("Y", o.Y);
  options.take("tau", o.tau);
  options.take("sigma", o.sigma);
  options.take("eps_total", o.eps_total);
  options.take("delta_total", o.delta_total);
  options.take_promise(o.accounting, o.guarantee);
  options.finish();
  return o;
}

StreamOptions stream_options(const nb::dict& given) {
  Options options("stream", given);
  StreamOptions o;
  OdometerOptions& odometer = o.odometer;
  odometer.accounting = Accounting::kZcdp;
  o.loss = Loss::kLogistic;
  options.take_loss(o.loss);
  options.take("dimension", o.dimension);
  options.take("calibration", o.calibration);
  options.take("quantile", o.calibrator.quantile);
  options.take("D_cap", o.calibrator.D_cap);
  options.take("eps_total", odometer.eps_total);
  options.take("delta_total", odometer.delta_total);
  options.take("lambda_", odometer.lambda);
  options.take("delta_B", odometer.delta_B);
  options.take("T", odometer.T);
  options.take("gamma_learn", odometer.gamma_learn);
  options.take("gamma_priv", odometer.gamma_priv);
  options.take_promise(odometer.accounting, odometer.guarantee);
  options.take("reserve", odometer.reserve);
  StreamConstants& enforced = odometer.enforced;
  enforced = {o.loss, o.dimension, odometer.lambda, 1, 1, 1, 1};
  options.take("G_f", enforced.G_f);
  options.take("D", enforced.D);
  options.take("R", enforced.R);
  options.take("Y", enforced.Y);
  options.finish();
  return o;
}

EngineOptions engine_options(const std::string& engine, const nb::dict& given) {
  if (engine == "exact") return exact_options(given);
  if (engine == "erm") return erm_options(given);
  if (engine == "stream") return stream_options(given);
  throw Error(ErrorCode::kInvalidInput, "unlearning",
              fmt::format("engine is '{}'; it must be exact, erm or stream", engine));
}

void add_engines(nb::module_& m) {
  nb::class_<Release>(m, "UnlearningRelease", "A model that was published.")
      .def_prop_ro(
          "parameters",
          [](const Release& r) { return to_numpy(std::vector<double>(r.parameters)); },
          nb::rv_policy::automatic)
      .def_ro("sigma", &Release::sigma, "Standard deviation of the noise on each parameter.")
      .def_ro("residual_bound", &Release::residual_bound,
              "Configured, not measured: distance to the exact solution.")
      .def_ro("guarantee", &Release::guarantee, "The promise for deleted records, in words.");

  nb::class_<Engine>(m, "UnlearningEngine")
      .def_prop_ro("name", [](const Engine& self) { return std::string(self.name()); })
      .def_prop_ro("dimension", &Engine::dimension)
      .def_prop_ro("live", &Engine::live, "Number of records that were inserted and not deleted.")
      .def("__contains__", &Engine::holds, "id"_a)
      .def(
          "insert",
          [](Engine& self, RecordId id, const Features& x, double y) {
            self.insert(id, {x.data(), x.size()}, y);
          },
          "id"_a, "x"_a, "y"_a, nb::call_guard<Unlocked>())
      .def(
          "erase", [](Engine& self, const std::vector<RecordId>& ids) { self.erase(ids); }, "ids"_a,
          nb::call_guard<Unlocked>())
      .def("publish", &Engine::publish, nb::call_guard<Unlocked>());

  nb::class_<ExactEngine, Engine>(m, "ExactEngine")
      .def("__init__",
           [](ExactEngine* self, const nb::dict& options) {
             new (self) ExactEngine(exact_options(options));
           })
      .def_prop_ro("state_digest",
                   [](const ExactEngine& self) { return to_hex(self.state_digest()); });
  nb::class_<ErmEngine, Engine>(m, "ErmEngine")
      .def("__init__",
           [](ErmEngine* self, const nb::dict& options, std::optional<std::uint64_t> seed) {
             new (self) ErmEngine(erm_options(options), noise_of(seed));
           })
      .def_prop_ro("releases_left", &ErmEngine::releases_left)
      .def_prop_ro("sensitivity", &ErmEngine::sensitivity)
      .def_prop_ro("rho_release", &ErmEngine::rho_release);
  nb::class_<StreamEngine, Engine>(m, "StreamEngine")
      .def("__init__",
           [](StreamEngine* self, std::shared_ptr<PrivacyOdometer> odometer, double release_sigma,
              std::optional<std::uint64_t> seed) {
             new (self) StreamEngine(std::move(odometer), noise_of(seed), release_sigma);
           })
      .def("reset", &StreamEngine::reset)
      .def_prop_ro("inserts", &StreamEngine::inserts)
      .def_prop_ro("sensitivity", &StreamEngine::sensitivity);

  nb::class_<DriftDetector>(m, "DriftDetector")
      .def(
          "__init__",
          [](DriftDetector* self, double loss_bound, std::uint64_t window, double threshold,
             double sigma, std::shared_ptr<PrivacyOdometer> odometer,
             std::optional<std::uint64_t> seed) {
            new (self) DriftDetector({loss_bound, window, threshold, sigma}, std::move(odometer),
                                     noise_of(seed));
          },
          "loss_bound"_a, "window"_a, "threshold"_a, "sigma"_a, "odometer"_a.none(),
          "insecure_seed"_a.none())
      .def("observe", &DriftDetector::observe, "loss"_a)
      .def_prop_ro("rho", &DriftDetector::rho);
}

// ---------------------------------------------------------------- the service

// A folder as `discreet unlearn init` makes it: model.db, and a ledger with its key pair.
void create(const fs::path& folder, const std::string& model, const std::string& engine,
            const nb::dict& given, const RecordForm& form) {
  const EngineOptions options = engine_options(engine, given);
  std::error_code failed;
  if (!fs::create_directory(folder, failed))
    throw Error(failed ? ErrorCode::kIoError : ErrorCode::kInvalidInput, "unlearning",
                failed
                    ? fmt::format("'{}' cannot be created: {}", folder.string(), failed.message())
                    : fmt::format("'{}' exists; choose another place", folder.string()));
  try {
    fs::permissions(folder, fs::perms::owner_all);
    Service::create(folder / "model.db", model, options, form);
    admission::SigningKey key = admission::SigningKey::generate();
    write_new(folder / "ledger.key", bytes_of(key.to_pem()), Access::kOwner);
    write_atomically(folder / "ledger.pub", bytes_of(key.public_key().to_pem()));
    ledger::Header header;
    header.origin = "discreet-unlearn/" + model;
    header.accountant = "rdp";
    header.delta = 10'000'000'000'000;  // 1e-5; deletions carry their own
    ledger::Ledger::create(folder / "ledger.db", header, bytes_of("deletions only"),
                           std::move(key));
  } catch (...) {
    fs::remove_all(folder, failed);
    throw;
  }
}

// Rows of declared columns; label: whether there is a column of it.
std::vector<Row> declared(const Service& service, const std::vector<std::string>& subjects,
                          const nb::list& columns, bool label) {
  const Columns table(columns);
  if (label && table.table.rows != subjects.size())
    throw Error(ErrorCode::kInvalidInput, "unlearning",
                fmt::format("found {} subjects and {} records; pass one subject per record",
                            subjects.size(), table.table.rows));
  std::vector<Row> rows =
      declared_rows(*service.form().columns, service.label_bound(), table.table, label);
  for (std::size_t i = 0; i < subjects.size() && i < rows.size(); ++i)
    rows[i].subject = subjects[i];
  return rows;
}

std::vector<Row> rows_of(const std::vector<std::string>& subjects, const RecordMatrix& x,
                         const Labels& y) {
  if (x.shape(0) != subjects.size() || y.shape(0) != subjects.size())
    throw Error(
        ErrorCode::kInvalidInput, "unlearning",
        fmt::format("found {} subjects, {} records and {} labels; pass one of each per record",
                    subjects.size(), x.shape(0), y.shape(0)));
  std::vector<Row> out;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const double* first = x.data() + i * x.shape(1);
    out.push_back(Row{subjects[i], std::vector<double>(first, first + x.shape(1)), y.data()[i]});
  }
  return out;
}

// The members that `discreet ledger check` verifies.
nb::dict receipt_of(const DeletionReceipt& receipt, const std::string& subject,
                    const ledger::Ledger::Placed& placed, const ledger::Header& header) {
  const ledger::Deletion& e = receipt.entry;
  nb::dict opening;
  opening["salt"] = to_hex(receipt.salt);
  opening["subject"] = subject;
  opening["records"] = receipt.records;
  nb::dict out;
  out["model"] = e.model;
  out["deletion"] = e.number;
  out["time"] = e.time;
  out["engine"] = e.engine;
  out["guarantee"] = std::string(ledger::describe(e).at("promise").as_text());
  out["epsilon"] = static_cast<double>(e.epsilon) / ledger::kMicro;
  out["delta"] = static_cast<double>(e.delta) / ledger::kAtto;
  out["residual_bound"] = static_cast<double>(e.residual) / ledger::kAtto;
  out["generation"] = e.generation;
  out["withdrawal"] = e.withdrawal;
  out["commitment"] = to_hex(e.commitment);
  out["origin"] = header.origin;
  out["entry"] = placed.position;
  out["leaf"] = to_hex(ledger::encode(e));
  out["receipt"] = to_hex(placed.receipt);
  out["public_key"] = to_hex(header.key);
  out["opening"] = opening;
  return out;
}

Digest descriptor_of(const std::string& hex) {
  const Bytes bytes = from_hex(hex);
  Digest out;
  if (bytes.size() != out.size())
    throw Error(ErrorCode::kInvalidInput, "delete",
                "withdrawal must be the hash of a descriptor: 64 hexadecimal digits");
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

nb::list erase(Service& service, const std::string& request,
               const std::vector<std::string>& subjects, const fs::path& ledger_file,
               const std::string& key, const std::string& passphrase,
               const std::optional<std::string>& withdrawal) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  std::vector<DeletionReceipt> receipts;
  std::vector<ledger::Ledger::Placed> placed;
  ledger::Header header;
  {
    const Unlocked others_may_run;
    ledger::Ledger ledger =
        ledger::Ledger::open(ledger_file, admission::SigningKey::from_pem(key, passphrase));
    std::optional<Digest> descriptor;
    if (withdrawal) descriptor = descriptor_of(*withdrawal);
    receipts = service.erase(request, subjects, ledger, static_cast<std::uint64_t>(now.count()),
                             descriptor);
    std::vector<Bytes> leaves;
    for (const DeletionReceipt& receipt : receipts) leaves.push_back(ledger::encode(receipt.entry));
    placed = ledger.receipts(leaves);
    header = ledger.state().header();
  }
  nb::list out;
  for (std::size_t i = 0; i < receipts.size(); ++i)
    out.append(receipt_of(receipts[i], subjects[i], placed[i], header));
  return out;
}

nb::dict status_of(const Service& service) {
  const ServiceStatus s = service.status();
  nb::dict out;
  out["model"] = s.model;
  out["engine"] = s.engine;
  out["guarantee"] = s.guarantee;
  out["live"] = s.live;
  out["deletions"] = s.deletions;
  out["generation"] = s.generation;
  out["unconfirmed"] = s.unconfirmed;
  out["published"] = s.published;
  out["deletes_left"] = s.deletes_left;
  out["releases_left"] = s.releases_left;
  out["eps_total"] = s.eps_total;
  out["delta_total"] = s.delta_total;
  out["eps_spent"] = s.eps_spent;
  out["warnings"] = s.warnings;
  out["state"] = to_hex(s.state);
  out["metrics"] = s.metrics;
  return out;
}

nb::object scores_of(const std::optional<Scores>& scores) {
  if (!scores) return nb::none();
  nb::dict out;
  out["measure"] = scores->measure;
  out["served"] = scores->served;
  out["retrained"] = scores->retrained;
  return out;
}

nb::dict verify_service(const Service& service, std::vector<Row> forgotten, std::vector<Row> test,
                        std::uint64_t runs, double confidence, std::uint64_t seed) {
  VerificationOptions options;
  options.forgotten = std::move(forgotten);
  options.test = std::move(test);
  options.attack_runs = runs;
  options.confidence = confidence;
  options.seed = seed;
  Verification v;
  {
    const Unlocked others_may_run;
    v = verify(service, options);
  }
  nb::dict out;
  out["holds"] = v.holds;
  out["distance"] = v.distance;
  out["bound"] = v.bound;
  out["same_state"] = v.same_state;
  out["disagreement"] = v.disagreement;
  out["retained"] = scores_of(v.retained);
  out["forgotten"] = scores_of(v.forgotten);
  out["test"] = scores_of(v.test);
  out["epsilon_lower_bound"] = v.epsilon_lower_bound;
  out["epsilon_certified"] = v.epsilon_certified;
  out["control_lower_bound"] = v.control_lower_bound;
  out["notes"] = v.notes;
  return out;
}

}  // namespace

void add_unlearning_service(nb::module_& m) {
  add_engines(m);
  nb::class_<RecordForm>(m, "UnlearningForm")
      .def(
          "__init__",
          [](RecordForm* self, bool intercept, const std::optional<nb::bytes>& yaml,
             const std::string& name) {
            RecordForm form{intercept, {}};
            if (yaml) form.columns = declared_columns({yaml->c_str(), yaml->size()}, name);
            require_sound(form);
            new (self) RecordForm(std::move(form));
          },
          "intercept"_a, "yaml"_a.none(), "name"_a)
      .def_prop_ro("intercept", [](const RecordForm& self) { return self.intercept; })
      .def_prop_ro("declared", [](const RecordForm& self) { return self.columns.has_value(); })
      .def_prop_ro(
          "features",
          [](const RecordForm& self) {
            return self.columns ? feature_names(*self.columns).size() : 0;
          },
          "Number of features of the declared columns.")
      .def_prop_ro("columns",
                   [](const RecordForm& self) {
                     std::vector<std::string> names;
                     if (!self.columns) return names;
                     for (const auto& [name, column] : self.columns->numeric) names.push_back(name);
                     for (const auto& [name, column] : self.columns->categorical)
                       names.push_back(name);
                     return names;
                   })
      .def_prop_ro("categorical",
                   [](const RecordForm& self) {
                     std::vector<std::string> names;
                     if (!self.columns) return names;
                     for (const auto& [name, column] : self.columns->categorical)
                       names.push_back(name);
                     return names;
                   })
      .def_prop_ro("label",
                   [](const RecordForm& self) {
                     return self.columns ? self.columns->label.name : std::string();
                   })
      .def_prop_ro("classes", [](const RecordForm& self) {
        return self.columns ? self.columns->label.classes : std::vector<std::string>();
      });
  m.def("unlearning_create", &create, "folder"_a, "model"_a, "engine"_a, "options"_a, "form"_a);
  nb::class_<Row>(m, "UnlearningRow");
  m.def("unlearning_rows", &rows_of, "subjects"_a, "x"_a, "y"_a);
  nb::class_<Service>(m, "UnlearningService")
      .def("__init__", [](Service* self, const fs::path& model,
                          const fs::path& ledger) { new (self) Service(model, ledger); })
      .def(
          "insert",
          [](Service& self, const std::string& request, const std::vector<Row>& rows,
             bool reinsert) {
            const Unlocked others_may_run;
            return self.insert(request, rows,
                               reinsert ? Service::Reinsert::kAllow : Service::Reinsert::kRefuse);
          },
          "request"_a, "rows"_a, "reinsert"_a)
      .def_prop_ro("form", &Service::form)
      .def_prop_ro("features", &Service::features)
      .def("declared_rows", &declared, "subjects"_a, "columns"_a, "label"_a)
      .def(
          "moved",
          [](const Service& self, const std::vector<Row>& rows) {
            const Service::Moved moved = self.moved(rows);
            return std::pair(moved.records, moved.labels);
          },
          "rows"_a, "(records beyond the norm bound, labels beyond their bound).")
      .def(
          "knows",
          [](const Service& self, const std::string& request) { return self.knows(request); },
          "request"_a)
      .def("erase", &erase, "request"_a, "subjects"_a, "ledger"_a, "key"_a, "passphrase"_a,
           "withdrawal"_a.none())
      .def(
          "confirm",
          [](Service& self, const fs::path& ledger_file, const std::string& key,
             const std::string& passphrase) {
            const Unlocked others_may_run;
            ledger::Ledger ledger =
                ledger::Ledger::open(ledger_file, admission::SigningKey::from_pem(key, passphrase));
            return self.confirm(ledger);
          },
          "ledger"_a, "key"_a, "passphrase"_a)
      .def("publish", &Service::publish, nb::call_guard<Unlocked>())
      .def(
          "predict",
          [](const Service& self, const std::vector<Row>& rows) {
            std::vector<double> scores, numbers;
            bool ready = true;
            for (const Row& row : rows) {
              const Prediction p = self.predict(row.x);
              scores.push_back(p.value);
              numbers.push_back(number_of(self.form(), p.value, self.label_bound()));
              ready = p.ready;
            }
            return nb::make_tuple(to_numpy(std::move(scores)), to_numpy(std::move(numbers)), ready);
          },
          "rows"_a, "Scores, the numbers that they stand for, and whether N* was reached.")
      .def("retrain", &Service::retrain, nb::call_guard<Unlocked>())
      .def("status", &status_of)
      .def("verify", &verify_service, "forgotten"_a, "test"_a, "runs"_a, "confidence"_a, "seed"_a);
}

}  // namespace discreet::python
