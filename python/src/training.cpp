#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "discreet/accounting/event.h"
#include "discreet/base/error.h"
#include "discreet/training/train.h"
#include "python/src/rooms.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;

namespace {

data::BadRow bad_row(const std::string& what) {
  if (what == "refuse") return data::BadRow::kRefuse;
  if (what == "skip") return data::BadRow::kSkip;
  throw Error(ErrorCode::kInvalidInput, "train",
              "on_bad_row is '" + what + "'; take refuse or skip");
}

nb::dict train(const nb::bytes& yaml, const std::string& name,
               const std::vector<std::string>& settings, const std::filesystem::path& relative_to,
               const std::filesystem::path& out, bool resume, int threads,
               const std::string& on_bad_row, const std::optional<nb::callable>& progress) {
  const LoadedConfig loaded =
      training::load_training_config({yaml.c_str(), yaml.size()}, name, settings, relative_to);
  std::atomic<bool> stop = false;
  training::TrainOptions options;
  options.directory = out;
  options.resume = resume;
  options.threads = threads;
  options.on_bad_row = bad_row(on_bad_row);
  options.stop = &stop;
  options.progress = [&](const training::Progress& p) {
    const nb::gil_scoped_acquire held;
    // Ctrl-C ends the run after its step, as it does in the command.
    if (PyErr_CheckSignals() != 0) {
      PyErr_Clear();
      stop = true;
    }
    if (!progress) return;
    nb::dict about;
    about["step"] = p.step;
    about["planned_steps"] = p.planned;
    about["epsilon"] = p.epsilon;
    about["steps_per_second"] = p.steps_per_second;
    (*progress)(about);
  };
  training::RunResult r;
  {
    const nb::gil_scoped_release released;
    r = training::train(loaded.config, options);
  }
  nb::dict about;
  about["directory"] = r.directory;
  about["epsilon"] = r.epsilon ? nb::object(nb::make_tuple(r.epsilon->lower, r.epsilon->upper))
                               : nb::object(nb::none());
  about["delta"] = r.delta;
  about["adjacency"] = std::string(accounting::to_string(r.adjacency));
  about["accuracy"] = r.accuracy;
  about["loss"] = r.loss;
  about["steps"] = r.steps;
  about["planned_steps"] = r.planned;
  about["seconds"] = r.seconds;
  about["ended"] = std::string(training::to_string(r.ended));
  about["not_private"] = r.not_private;
  about["notes"] = r.notes;
  about["zeroed"] = r.zeroed;
  about["released"] = nb::none();
  if (r.released) {
    nb::dict released;
    released["clip_fraction"] = r.released->clip_fraction;
    released["group_clip_fraction"] = r.released->group_clip_fraction;
    about["released"] = released;
  }
  return about;
}

}  // namespace

void discreet::python::add_training(nb::module_& m) {
  m.def("train", &train, "yaml"_a, "name"_a, "settings"_a, "relative_to"_a, "out"_a, "resume"_a,
        "threads"_a, "on_bad_row"_a, "progress"_a.none());
}
