#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "discreet/accounting/event.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_resolve.h"
#include "discreet/data/open.h"
#include "discreet/report/html.h"
#include "discreet/training/model.h"
#include "discreet/training/safetensors.h"
#include "discreet/training/train.h"
#include "python/src/array.h"
#include "python/src/columns.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using discreet::python::Columns;

namespace {

data::BadRow bad_row(const std::string& what) {
  if (what == "reject") return data::BadRow::kRefuse;
  if (what == "skip") return data::BadRow::kSkip;
  invalid_input("train", "on_bad_row is '{}'; it must be reject or skip", what);
}

// The tensors of a model.safetensors: name to array, in the order of the file.
nb::dict read_model(const std::filesystem::path& path) {
  nb::dict out;
  for (training::NamedTensor& tensor : training::decode_safetensors(read_file(path))) {
    const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
    auto values = python::to_numpy(std::move(tensor.values));
    out[tensor.name.c_str()] =
        nb::ndarray<nb::numpy, float>(values.data(), shape.size(), shape.data(), values.cast());
  }
  return out;
}

nb::object interval_or_none(const std::optional<double>& lower,
                            const std::optional<double>& upper) {
  if (!upper) return nb::none();
  return nb::make_tuple(lower.value_or(0), *upper);
}

nb::dict train(const nb::bytes& yaml, const std::string& name,
               const std::vector<std::string>& settings, const std::filesystem::path& relative_to,
               const std::filesystem::path& out, bool resume, int threads,
               const std::string& on_bad_row, const std::optional<nb::callable>& progress,
               const std::optional<nb::list>& columns,
               const std::optional<nb::list>& test_columns) {
  const LoadedConfig loaded = training::load_training_config(
      {yaml.c_str(), yaml.size()}, name, settings, relative_to, resume ? &out : nullptr);
  std::atomic<bool> stop = false;
  training::TrainOptions options;
  options.directory = out;
  options.resume = resume;
  options.threads = threads;
  options.on_bad_row = bad_row(on_bad_row);
  options.stop = &stop;
  std::vector<Columns> held;
  std::optional<data::Arrays> arrays;
  if (columns) {
    arrays.emplace(held.emplace_back(*columns).table);
    if (test_columns) arrays->test = held.emplace_back(*test_columns).table;
    options.arrays = &*arrays;
  }
  options.progress = [&](const training::Progress& p) {
    const python::Locked held;
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
    try {
      (*progress)(about);
    } catch (const nb::python_error& error) {  // Ctrl-C while the callback ran
      if (!error.matches(PyExc_KeyboardInterrupt)) throw;
      stop = true;
    }
  };
  training::RunResult r;
  {
    const python::Unlocked released;
    r = training::train(loaded.config, options);
  }
  nb::dict about;
  about["directory"] = r.directory;
  about["epsilon"] = r.epsilon && r.not_private.empty()
                         ? interval_or_none(r.epsilon->lower, r.epsilon->upper)
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
  std::vector<std::string> notes = loaded.notes;
  notes.insert(notes.end(), r.notes.begin(), r.notes.end());
  about["notes"] = notes;
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

// What the files of a run say about it, as `train` returns it. Of the notes those that follow from
// the configuration.
nb::dict open_run(const std::filesystem::path& run) {
  report::RunSummary summary;
  {
    const python::Unlocked released;
    summary = report::summarize(run);
  }
  const report::Declared& declared = summary.declared;
  const bool is_private = declared.not_private.empty();
  nb::dict about;
  about["directory"] = run;
  about["epsilon"] = is_private ? interval_or_none(declared.claim.lower, declared.claim.upper)
                                : nb::object(nb::none());
  about["delta"] = declared.claim.delta;
  about["adjacency"] = std::string(accounting::to_string(declared.claim.adjacency));
  about["accuracy"] =
      summary.observed.accuracy_is_held_out ? summary.observed.accuracy : std::optional<double>();
  about["steps"] = summary.observed.steps;
  about["planned_steps"] = declared.planned_steps;
  about["ended"] = std::string(report::to_string(declared.ended));
  about["not_private"] = declared.not_private;
  about["notes"] = load_config(write_yaml(without_places(declared.config)), "config.yaml").notes;
  return about;
}

// A trained model, with the bytes from which it can be restored. It holds no key.
struct Model {
  training::TrainedModel trained;
  Bytes file;

  static Model load(const std::filesystem::path& run) {
    return {training::load_model(run), read_file(run / "model.safetensors", std::size_t{1} << 36)};
  }
  static Model make(const std::string& yaml, const nb::bytes& file, const BoundsMap& released) {
    const ByteView bytes = bytes_of({file.c_str(), file.size()});
    return {training::make_model(load_config(yaml, "config.yaml").config, bytes, released),
            Bytes(bytes.begin(), bytes.end())};
  }

  nb::tuple state() const {
    return nb::make_tuple(write_yaml(without_places(trained.config)),
                          nb::bytes(file.data(), file.size()), trained.released_bounds);
  }

  // The columns that records have, in their order; empty where any names do.
  std::vector<std::string> columns() const {
    std::map<std::string, std::string> column_of;
    for (const auto& [column, words] : trained.config.data.categorical)
      for (const std::string& word : words) column_of[column + "=" + word] = column;
    std::vector<std::string> out;
    for (const std::string& feature : trained.features) {
      const auto categorical = column_of.find(feature);
      const std::string& column = categorical == column_of.end() ? feature : categorical->second;
      if (out.empty() || out.back() != column) out.push_back(column);
    }
    if (trained.config.data.format == DataFormat::kDigits)
      for (std::size_t pixel = 0; pixel < 64; ++pixel) out.push_back(fmt::format("p{}", pixel));
    return out;
  }

  std::vector<std::string> classes() const {
    if (!trained.network.shape().classifies) return {};
    if (!trained.config.data.classes.empty()) return trained.config.data.classes;
    std::vector<std::string> out;
    for (std::size_t k = 0; k < trained.network.shape().sizes.back(); ++k)
      out.push_back(std::to_string(k));
    return out;
  }

  // [rows * outputs]
  auto outputs(const nb::list& columns, int threads) const {
    const Columns held(columns);
    std::vector<float> out;
    {
      const python::Unlocked released;
      out = training::predict(
          trained, data::open_records(trained.config.data, trained.released_bounds, held.table),
          threads);
    }
    return python::to_numpy(std::move(out));
  }
};

}  // namespace

void discreet::python::add_training(nb::module_& m) {
  m.def("read_model", &read_model, "path"_a);
  m.def("train", &train, "yaml"_a, "name"_a, "settings"_a, "relative_to"_a, "out"_a, "resume"_a,
        "threads"_a, "on_bad_row"_a, "progress"_a.none(), "columns"_a.none() = nb::none(),
        "test_columns"_a.none() = nb::none());
  m.def(
      "given_keys",
      [](const nb::bytes& yaml, const std::string& name, const std::vector<std::string>& settings) {
        std::vector<std::string> out;
        for (const auto& [key, where] :
             read_config({yaml.c_str(), yaml.size()}, name, settings).where)
          out.push_back(key);
        return out;
      },
      "yaml"_a, "name"_a, "settings"_a, "The keys that a configuration or its preset sets.");
  m.def("open_run", &open_run, "run"_a);
  m.def(
      "write_report",
      [](const std::filesystem::path& run, bool is_public,
         const std::optional<std::filesystem::path>& out) {
        const std::filesystem::path path = out ? *out : report::default_report(run, is_public);
        const python::Unlocked released;
        report::write_report(run, is_public, path);
        return path;
      },
      "run"_a, "public"_a, "out"_a.none());
  nb::class_<Model>(m, "Model")
      .def_static("load", &Model::load, "run"_a)
      .def_static("make", &Model::make, "yaml"_a, "safetensors"_a, "released_bounds"_a)
      .def("state", &Model::state)
      .def("outputs", &Model::outputs, "columns"_a, "threads"_a)
      .def_prop_ro("columns", &Model::columns)
      .def_prop_ro("classes", &Model::classes)
      .def_prop_ro("label_bounds",
                   [](const Model& self) { return self.trained.config.data.label_bounds; })
      .def_prop_ro("released_bounds",
                   [](const Model& self) { return self.trained.released_bounds; })
      .def_prop_ro("categorical",
                   [](const Model& self) { return self.trained.config.data.categorical; })
      .def_prop_ro("bounds", [](const Model& self) {
        BoundsMap out = self.trained.config.data.numeric;
        out.insert(self.trained.released_bounds.begin(), self.trained.released_bounds.end());
        return out;
      });
}
