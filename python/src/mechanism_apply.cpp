#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "discreet/base/nearest.h"
#include "discreet/mechanism/apply.h"
#include "discreet/mechanism/config_read.h"
#include "discreet/mechanism/prevalidation.h"
#include "python/src/accounting.h"
#include "python/src/array.h"
#include "python/src/rooms.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::mechanism;

namespace {

constexpr const char* kOperator = "Apply_v3";

using Rows = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
// Name, shape, layer, group, trainable, adapter.
using TensorTuple = std::tuple<std::string, std::vector<std::uint64_t>, std::string, std::string,
                               bool, std::string>;

LoadedConfig loaded(const nb::bytes& yaml, const std::string& name,
                    const std::vector<std::string>& settings) {
  return load_config({yaml.c_str(), yaml.size()}, name, settings);
}

// As the trace's JSON has it: bytes are hexadecimal text.
nb::object to_python(const cbor::Value& value) {
  switch (value.type()) {
    case cbor::Type::kUnsigned: return nb::int_(value.as_unsigned());
    case cbor::Type::kNegative: return nb::int_(value.as_int64());
    case cbor::Type::kBytes: return nb::str(to_hex(value.as_bytes()).c_str());
    case cbor::Type::kText: return nb::str(value.as_text().data(), value.as_text().size());
    case cbor::Type::kBool: return nb::bool_(value.as_bool());
    case cbor::Type::kFloat: return nb::float_(value.as_float());
    case cbor::Type::kTag: return to_python(value.tag_content());
    case cbor::Type::kNull: return nb::none();
    case cbor::Type::kArray: {
      nb::list out;
      for (const cbor::Value& item : value.as_array()) out.append(to_python(item));
      return out;
    }
    case cbor::Type::kMap: {
      nb::dict out;
      for (const auto& [key, item] : value.as_map()) out[to_python(key)] = to_python(item);
      return out;
    }
  }
  return nb::none();
}

// A dictionary of arrays in the order of the layout, borrowed.
class Borrowed {
 public:
  Borrowed(const ModelLayout& layout, const nb::dict& arrays) {
    refuse_unknown(layout, arrays);
    rows_.resize(layout.size());
    for (std::size_t i = 0; i < layout.size(); ++i)
      if (layout.tensors()[i].is_private()) take(layout.tensors()[i], i, arrays);
  }

  Microbatch microbatch() const {
    return first_ && holds<float>(*first_) ? as<float>() : as<double>();
  }

 private:
  template <class Real>
  static bool holds(const Rows& rows) {
    return rows.dtype() == nb::dtype<Real>();
  }

  template <class Real>
  Microbatch as() const {
    PerSampleGradients<Real> out{first_ ? first_->shape(0) : 0, {}};
    for (const std::optional<Rows>& rows : rows_) {
      if (rows)
        out.tensors.emplace_back(static_cast<const Real*>(rows->data()), rows->size());
      else
        out.tensors.emplace_back();
    }
    return out;
  }

  [[noreturn]] static void refuse(std::string sentence) {
    throw Error(ErrorCode::kInvalidGradient, kOperator, std::move(sentence));
  }

  static void refuse_unknown(const ModelLayout& layout, const nb::dict& arrays) {
    std::vector<std::string> names;
    for (const Tensor& tensor : layout.tensors()) names.push_back(tensor.name);
    for (const auto& [key, value] : arrays) {
      const std::string name = nb::cast<std::string>(key);
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const auto meant = nearest(name, names);
      refuse(fmt::format("the layout has no tensor {}{}", name,
                         meant ? fmt::format("; did you mean {}?", *meant) : ""));
    }
  }

  void take(const Tensor& tensor, std::size_t i, const nb::dict& arrays) {
    if (!arrays.contains(tensor.name.c_str()))
      refuse(
          fmt::format("the gradients of tensor {} are missing; give an array [records, {}], or "
                      "declare the tensor public or not trainable",
                      tensor.name, fmt::join(tensor.shape, ", ")));
    Rows rows;
    if (!nb::try_cast(arrays[tensor.name.c_str()], rows, /*convert=*/false) ||
        !(holds<float>(rows) || holds<double>(rows)) || (first_ && rows.dtype() != first_->dtype()))
      refuse(
          fmt::format("tensor {} is not a C-contiguous array [records, ...] of the dtype of the "
                      "first one, float32 or float64; give one (nothing is copied)",
                      tensor.name));
    bool fits = rows.ndim() == tensor.shape.size() + 1;
    for (std::size_t d = 0; fits && d < tensor.shape.size(); ++d)
      fits = rows.shape(d + 1) == tensor.shape[d];
    if (!fits) {
      std::vector<std::size_t> shape;
      for (std::size_t d = 0; d < rows.ndim(); ++d) shape.push_back(rows.shape(d));
      refuse(fmt::format("tensor {} has the shape [{}]; give [records, {}]", tensor.name,
                         fmt::join(shape, ", "), fmt::join(tensor.shape, ", ")));
    }
    if (first_ && rows.shape(0) != first_->shape(0))
      refuse(fmt::format("tensor {} has {} records, the tensors before it {}", tensor.name,
                         rows.shape(0), first_->shape(0)));
    if (!first_) first_ = rows;
    rows_[i] = std::move(rows);
  }

  std::vector<std::optional<Rows>> rows_;  // one per tensor; none: not private
  std::optional<Rows> first_;
};

template <class Real>
nb::object to_array(std::span<const double> values, const Tensor& tensor) {
  auto copy = std::make_unique<std::vector<Real>>(values.begin(), values.end());
  const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  Real* data = copy->data();
  const nb::capsule owner(copy.release(),
                          [](void* p) noexcept { delete static_cast<std::vector<Real>*>(p); });
  return nb::ndarray<nb::numpy, Real>(data, shape.size(), shape.data(), owner).cast();
}

nb::tuple pair_of(const accounting::Interval& interval) {
  return nb::make_tuple(interval.lower, interval.upper);
}

// The mechanism as Python holds it. Arrays are borrowed and the interpreter is free while it
// works; threads that share one take turns.
class Session {
 public:
  Session(LoadedConfig config, const ModelLayout& layout, random::Key key, const Digest& data,
          int threads)
      : notes(std::move(config.notes)),
        key_(std::move(key)),
        mechanism_(config.config, layout, mechanism_streams(config.config.privacy, key_),
                   kernel_replay_token(config.config, data), threads) {}

  template <class F>
  auto with(F&& use) {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    return use(mechanism_);
  }

  void accumulate(const nb::dict& gradients) {
    const Borrowed borrowed(layout(), gradients);
    const Microbatch microbatch = borrowed.microbatch();
    with([&](Mechanism& m) { m.accumulate(microbatch); });
  }

  nb::dict release() {
    return to_dict(with([](Mechanism& m) { return m.release(); }));
  }

  nb::dict apply(const nb::list& microbatches) {
    std::vector<Borrowed> borrowed;
    for (const nb::handle gradients : microbatches)
      borrowed.emplace_back(layout(), nb::cast<nb::dict>(gradients));
    std::vector<Microbatch> all;
    for (const Borrowed& one : borrowed) all.push_back(one.microbatch());
    return to_dict(with([&](Mechanism& m) { return m.apply(all); }));
  }

  Sampler sampler(std::uint64_t rows) const {
    const DpConfig& dp = mechanism_.config().privacy;
    const std::string_view name = random::stream::kSampling;
    random::Generator coins = dp.secure
                                  ? random::Generator::secure(key_.derive(name))
                                  : random::Generator(random::Algorithm::kPhilox4x32,
                                                      random::Key::from_seed(dp.seed).derive(name));
    // Steps that are executed again draw other batches.
    const std::string lineage = mechanism_.lineage();
    return {mechanism_.sampling(), rows, lineage.empty() ? std::move(coins) : coins.fork(lineage)};
  }

  const Mechanism& fixed() const noexcept { return mechanism_; }  // for what never changes
  const ModelLayout& layout() const noexcept { return mechanism_.layout(); }

  const std::vector<std::string> notes;

 private:
  nb::dict to_dict(const StepResult& step) const {
    const bool wide = mechanism_.config().run.compute_dtype == ComputeDtype::kFloat64;
    nb::dict gradients;
    for (std::size_t i = 0; i < layout().size(); ++i) {
      const Tensor& tensor = layout().tensors()[i];
      if (tensor.is_private())
        gradients[tensor.name.c_str()] =
            (wide ? to_array<double> : to_array<float>)(step.gradients.tensor(i), tensor);
    }
    nb::dict metrics = nb::cast<nb::dict>(to_python(step.metrics.to_cbor()));
    metrics["cumulative_epsilon"] = step.metrics.cumulative_epsilon;
    metrics["privacy_budget_remaining"] = step.metrics.privacy_budget_remaining;
    metrics["privacy_allocation_mode"] = step.metrics.privacy_allocation_mode;
    nb::dict out;
    out["t"] = step.t;
    out["gradients"] = gradients;
    out["before"] = pair_of(step.budget.before);
    out["after"] = pair_of(step.budget.after);
    out["past_warning"] = step.budget.past_warning;
    out["metrics"] = metrics;
    out["released"] = nb::none();
    if (step.released) {
      nb::dict released;
      released["clip_fraction"] = step.released->clip_fraction;
      released["group_clip_fraction"] = step.released->group_clip_fraction;
      out["released"] = released;
    }
    out["warnings"] = step.warnings;
    out["trace"] = to_python(trace_iter(step));
    return out;
  }

  std::mutex mutex_;
  random::Key key_;
  Mechanism mechanism_;
};

ModelLayout layout_of(const std::vector<TensorTuple>& tensors) {
  std::vector<Tensor> out;
  for (const auto& [name, shape, layer, group, trainable, adapter] : tensors)
    out.push_back({.name = name,
                   .shape = shape,
                   .layer = layer,
                   .group = group,
                   .trainable = trainable,
                   .adapter = adapter});
  return ModelLayout(std::move(out));
}

Digest digest_of(const nb::bytes& bytes) {
  Digest out{};
  if (bytes.size() != out.size())
    throw Error(
        ErrorCode::kInvalidInput, "Mechanism",
        fmt::format("data_commitment has {} bytes; give the 32 of a SHA-256 digest", bytes.size()));
  std::copy_n(python::view(bytes).begin(), out.size(), out.begin());
  return out;
}

Error error_of(const std::string& code, const std::string& op, const std::string& sentence) {
  for (int c = 0; c <= static_cast<int>(ErrorCode::kIoError); ++c)
    if (to_string(static_cast<ErrorCode>(c)) == code)
      return {static_cast<ErrorCode>(c), op, sentence};
  throw Error(ErrorCode::kInvalidInput, "Mechanism",
              fmt::format("'{}' is no code of a discreet.Error", code));
}

void add_session(nb::module_& m) {
  nb::class_<Session>(m, "MechanismSession")
      .def(
          "__init__",
          [](Session* self, const nb::bytes& yaml, const std::string& name,
             const std::vector<std::string>& settings, const std::vector<TensorTuple>& tensors,
             std::optional<nb::bytes> key, std::optional<nb::bytes> data, int threads) {
            new (self) Session(
                loaded(yaml, name, settings), layout_of(tensors),
                key ? random::Key::from_bytes(python::view(*key)) : random::Key::from_system(),
                data ? digest_of(*data) : Digest{}, threads);
          },
          "yaml"_a, "name"_a, "settings"_a, "tensors"_a, "key"_a.none(), "data_commitment"_a.none(),
          "threads"_a)
      .def("accumulate", &Session::accumulate)
      .def("release", &Session::release)
      .def("apply", &Session::apply)
      .def("sampler", &Session::sampler)
      .def("t", [](Session& s) { return s.with([](Mechanism& m) { return m.t(); }); })
      .def("spent",
           [](Session& s) {
             return pair_of(s.with([](Mechanism& m) { return m.spent().epsilon; }));
           })
      .def("most_records", [](const Session& s) { return s.fixed().most_records(); })
      .def("not_private", [](const Session& s) { return s.fixed().not_private(); })
      .def("notes", [](const Session& s) { return s.notes; })
      .def("yaml", [](const Session& s) { return write_yaml(s.fixed().config()); })
      .def("hash", [](const Session& s) { return to_hex(config_hash(s.fixed().config())); })
      .def("budget",
           [](const Session& s) {
             const DpConfig& dp = s.fixed().config().privacy;
             return nb::make_tuple(dp.target_epsilon, dp.target_delta,
                                   std::string(accounting::to_string(dp.adjacency)),
                                   std::string(s.fixed().accountant().name()));
           })
      .def("replay",
           [](Session& s) { return to_hex(s.with([](Mechanism& m) { return m.replay(); })); })
      .def("fingerprint",
           [](Session& s) { return to_hex(s.with([](Mechanism& m) { return m.fingerprint(); })); })
      .def("trace_header",
           [](Session& s) {
             return to_python(s.with([](Mechanism& m) { return m.trace_header(); }));
           })
      .def("trace_end",
           [](Session& s) { return to_python(s.with([](Mechanism& m) { return m.trace_end(); })); })
      .def("failure",
           [](Session& s, const std::string& code, const std::string& op,
              const std::string& sentence) {
             const Error error = error_of(code, op, sentence);
             return to_python(s.with([&](Mechanism& m) { return m.emit_error(error).to_cbor(); }));
           })
      .def("save",
           [](Session& s) {
             return python::to_bytes(s.with([](Mechanism& m) { return m.save(); }));
           })
      .def("lineage", [](Session& s) { return s.with([](Mechanism& m) { return m.lineage(); }); })
      .def("restore",
           [](Session& s, const nb::bytes& bytes, std::optional<std::uint64_t> released) {
             const ByteView view = python::view(bytes);
             s.with([&](Mechanism& m) { m.restore(view, released); });
           });
}

}  // namespace

void discreet::python::add_mechanism_apply(nb::module_& m) {
  nb::class_<Sampler>(m, "Sampler", R"(The batches of a run, by the law that its accountant knows.

From Mechanism.sampler(rows). A batch depends on the key and the step, and on nothing else.)")
      .def(
          "batch",
          [](Sampler& s, std::uint64_t step, std::uint64_t rank, std::uint64_t world) {
            return to_numpy(s.batch(step, rank, world));
          },
          "step"_a, nb::kw_only(), "rank"_a = 0, "world"_a = 1,
          "The records of a step, ascending, as uint64; it may be empty. Of one rank: its share.")
      .def_prop_ro("rows", &Sampler::rows, "The number of records that there are.")
      .def("__repr__", [](const Sampler& s) {
        return fmt::format("<discreet.mechanism.Sampler of {} rows>", s.rows());
      });
  add_session(m);
  m.def(
      "load_config",
      [](const nb::bytes& yaml, const std::string& name, const std::vector<std::string>& settings) {
        const LoadedConfig config = loaded(yaml, name, settings);
        return nb::make_tuple(write_yaml(config.config), to_hex(config_hash(config.config)),
                              config.notes, not_private_reasons(config.config.privacy));
      },
      "yaml"_a, "name"_a, "settings"_a);
}
