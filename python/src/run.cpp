#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include "discreet/config/config_resolve.h"
#include "discreet/run/environment.h"
#include "discreet/run/session.h"
#include "python/src/accounting.h"
#include "python/src/rooms.h"
#include "python/src/session.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::mechanism;
using discreet::python::Session;
using discreet::python::TensorTuple;

namespace {

using Texts = std::map<std::string, std::string>;

cbor::Value environment_with(const Texts& further) {
  std::vector<cbor::Entry> entries = run::environment().as_map();
  for (const auto& [name, text] : further) entries.push_back({name, text});
  return cbor::map(std::move(entries));
}

// The data set as the caller knows it. digest: of its records; empty: only their number is known.
struct DataSet {
  std::uint64_t rows = 0;
  Bytes digest;

  Digest identity() const {
    std::vector<cbor::Value> parts = {"discreet.torch data set", rows};
    if (!digest.empty()) parts.emplace_back(ByteView(digest));
    return sha256(cbor::encode(cbor::array(std::move(parts))));
  }
  // What the run in `files` started with: one that knew only the number of records stays so.
  Digest identity(const run::RunFiles& files) const {
    const Digest by_number = DataSet{rows, {}}.identity();
    const auto& header = files.header();
    const bool was_by_number = header && header->data_commitment == to_hex(run::data_commitment(
                                                                        by_number, files.secret()));
    return was_by_number ? by_number : identity();
  }
};

// Everything that is made before the mechanism is.
struct Opened {
  Opened(const LoadedConfig& config, const std::filesystem::path& directory, bool resumes,
         const DataSet& set, const Texts& further)
      : files(std::make_unique<run::RunFiles>(directory, config.config, resumes)),
        resume(resumes),
        data(set.identity(*files)),
        environment(environment_with(further)),
        commitment(run::data_commitment(data, files->secret())),
        key(run::run_key(files->secret(), config.config, data)) {}

  run::RunStreams streams(const DpConfig& privacy) const {
    const auto& header = files->header();
    return run::run_streams(privacy,
                            run::in_environment(key, header ? header->environment : environment),
                            header ? std::optional(header->generator) : std::nullopt);
  }

  std::unique_ptr<run::RunFiles> files;
  bool resume;
  Digest data;
  cbor::Value environment;
  Digest commitment;
  random::Key key;
};

// A mechanism with its run directory. PyTorch does not promise the same bits twice, so nothing is
// ever repeated: every process that resumes the run draws from new streams, also one that resumes
// a copy of the directory, and steps that were released after the last checkpoint are charged
// again.
class RunSession : public Session {
 public:
  RunSession(const LoadedConfig& config, const ModelLayout& layout, Opened opened, int threads)
      : Session(config, layout, opened.streams(config.config.privacy), opened.commitment, threads,
                true),
        opened_(std::move(opened)),
        records_(*opened_.files, mechanism(), opened_.key, opened_.environment) {
    try {
      require_same_run();
      begin();
    } catch (...) {
      opened_.files->remove_if_new();
      throw;
    }
  }

  // What write_checkpoint was given last; none if the run starts here.
  std::optional<Bytes> saved;
  std::uint64_t charged_again = 0;  // steps since the last checkpoint, and of an epoch that is cut

  void write_checkpoint(ByteView training) { records().write_checkpoint(training); }
  std::map<std::string, std::string> about_model() { return records().about_model(); }
  void write_model(ByteView bytes) { files().write_model(bytes); }
  void fail(const Error& error) {
    with([&](Mechanism&) { records().fail(error); });
  }
  run::Session::End end(std::optional<run::Ended> said) {
    return with([&](Mechanism&) {
      return records().end(said, {{"accuracy", nullptr}, {"loss", nullptr}});
    });
  }
  // Lets another process have the directory.
  void close() noexcept { opened_.files.reset(); }

 private:
  void require_same_run() {
    const auto& header = opened_.files->header();
    if (!header) return;
    const auto refuse = [&](const char* what) {
      invalid_input("PrivacyEngine",
                    "{} started with {}; use the same, or start another run in its own directory",
                    opened_.files->directory().string(), what);
    };
    if (header->layout_hash != to_hex(layout().hash())) refuse("another model");
    if (header->data_commitment != to_hex(opened_.commitment))
      refuse("a data set with another number of records, or with other records");
    if (header->config_hash != to_hex(config_hash(fixed().config()))) refuse("other settings");
    if (header->specification != run::specification()) refuse("another specification");
  }

  void begin() {
    const auto checkpoint = opened_.files->checkpoint(
        opened_.key, {run::specification(), config_hash(fixed().config()), layout().hash()});
    if (!opened_.files->header()) {
      fixed().require_start();
      // The key may be in a copy of this directory too.
      if (opened_.resume) with([&](Mechanism& m) { m.restore(m.save(), 0, /*fresh=*/true); });
      opened_.files->begin_trace(header(), {});
      return;
    }
    run::TracePosition at;
    std::uint64_t t = 0;
    Bytes state = fixed().save();
    if (checkpoint) {
      at = checkpoint->trace;
      t = checkpoint->step;
      state = checkpoint->mechanism;
      const cbor::Value training = cbor::decode(checkpoint->training);
      const ByteView bytes = training.at("state").as_bytes();
      saved.emplace(bytes.begin(), bytes.end());
      records_.restore(training);
    }
    const std::uint64_t released = t + opened_.files->steps_after(at, t);
    with([&](Mechanism& m) { m.restore(state, released, /*fresh=*/true); });
    // Batches are drawn again: an event of several steps that is cut at t is charged again whole.
    charged_again = released - t + t % fixed().sampling().steps_per_event();
    const DpConfig& dp = fixed().config().privacy;
    const double spent = fixed().spent().epsilon.upper;
    if (charged_again > 0 && dp.enabled && !(spent <= dp.target_epsilon))
      budget_exceeded(
          "PrivacyEngine",
          "the {} steps since the last checkpoint or of a partial epoch (all planned steps if "
          "trace.steps is missing, as in runs of earlier versions) are charged again, which raises "
          "epsilon to {}, above the target {}; start another run",
          charged_again, spent, dp.target_epsilon);
    opened_.files->extend_trace(at,
                                cbor::map({{"t", t},
                                           {"released", released},
                                           {"charged_again", charged_again},
                                           {"noise", "fresh"},
                                           {"differs", "PyTorch does not promise the same bits"},
                                           {"environment", opened_.environment}}));
    // Before any step: else the charge would be forgotten if this process ended.
    if (charged_again > 0) write_checkpoint(saved ? ByteView(*saved) : ByteView());
  }

  cbor::Value header() {
    const DpConfig& dp = fixed().config().privacy;
    return records_.header(
        opened_.commitment, run::spelling(opened_.streams(dp).algorithm),
        dp.clip_strategy == ClipStrategy::kPerLayer,
        {{"trainer", "discreet.torch"},
         {"assumed_exact", "the sums of clipped gradients, formed in binary64"}});
  }

  void released(const StepResult& step) override { records().record(step); }

  run::RunFiles& files() {
    if (process_ != random::this_process())
      invalid_input("PrivacyEngine",
                    "the run belongs to the process from which this one was forked; create a "
                    "PrivacyEngine in the process that trains");
    if (!opened_.files)
      invalid_input(
          "PrivacyEngine",
          "the run was closed; continue it with PrivacyEngine(directory=..., resume=True)");
    return *opened_.files;
  }
  run::Session& records() {
    files();
    return records_;
  }

  Opened opened_;
  run::Session records_;
  std::uint64_t process_ = random::this_process();
};

}  // namespace

void discreet::python::add_run(nb::module_& m) {
  nb::class_<RunSession, Session>(m, "RunSession")
      .def(
          "__init__",
          [](RunSession* self, const nb::bytes& yaml, const std::string& name,
             const std::vector<TensorTuple>& tensors, const std::filesystem::path& directory,
             bool resume, std::uint64_t rows, const nb::bytes& digest, const Texts& environment,
             int threads) {
            const LoadedConfig config = loaded(yaml, name, {});
            const ByteView bytes = python::view(digest);
            const DataSet data{rows, Bytes(bytes.begin(), bytes.end())};
            new (self) RunSession(config, layout_of(tensors),
                                  Opened(config, directory, resume, data, environment), threads);
          },
          "yaml"_a, "name"_a, "tensors"_a, "directory"_a, "resume"_a, "rows"_a, "digest"_a,
          "environment"_a, "threads"_a)
      .def_prop_ro("saved",
                   [](const RunSession& s) {
                     return s.saved ? nb::object(python::to_bytes(*s.saved))
                                    : nb::object(nb::none());
                   })
      .def_prop_ro("charged_again", [](const RunSession& s) { return s.charged_again; })
      .def("write_checkpoint",
           [](RunSession& s, const nb::bytes& training) {
             s.write_checkpoint(python::view(training));
           })
      .def("about_model", &RunSession::about_model)
      .def("write_model",
           [](RunSession& s, const nb::bytes& bytes) { s.write_model(python::view(bytes)); })
      .def("fail",
           [](RunSession& s, const std::string& code, const std::string& op,
              const std::string& sentence) { s.fail(python::error_of(code, op, sentence)); })
      .def("end",
           [](RunSession& s, const std::optional<std::string>& said) {
             const run::Session::End end = s.end(python::ended_of(said));
             nb::dict out;
             out["ended"] = std::string(to_string(end.ended));
             out["epsilon"] = end.epsilon ? nb::object(python::pair_of(*end.epsilon)) : nb::none();
             out["zeroed"] = end.zeroed;
             return out;
           })
      .def("close", &RunSession::close);
}
