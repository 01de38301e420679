#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "discreet/base/text/nearest.h"
#include "discreet/config/config_read.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/run/run_keys.h"
#include "discreet/run/session.h"
#include "python/src/array.h"
#include "python/src/gil.h"

// The mechanism as Python holds it.
namespace discreet::python {

using namespace discreet::mechanism;

constexpr const char* kOperator = "Apply_v3";
using Rows = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// Name, shape, layer, group, trainable, adapter.
using TensorTuple = std::tuple<std::string, std::vector<std::uint64_t>, std::string, std::string,
                               bool, std::string>;

inline LoadedConfig loaded(const nb::bytes& yaml, const std::string& name,
                           const std::vector<std::string>& settings) {
  return load_config({yaml.c_str(), yaml.size()}, name, settings);
}

// Number of experts and their axis, by tensor.
using Experts = std::map<std::string, std::pair<std::uint32_t, std::uint32_t>>;

inline ModelLayout layout_of(const std::vector<TensorTuple>& tensors, const Experts& experts = {}) {
  std::vector<Tensor> out;
  for (const auto& [name, shape, layer, group, trainable, adapter] : tensors) {
    out.push_back({.name = name,
                   .shape = shape,
                   .layer = layer,
                   .group = group,
                   .trainable = trainable,
                   .adapter = adapter});
    if (const auto found = experts.find(name); found != experts.end())
      out.back().experts = Slices{found->second.first, found->second.second};
  }
  return ModelLayout(std::move(out));
}

// As the trace's JSON has it: bytes are hexadecimal text.
inline nb::object to_python(const cbor::Value& value) {
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

inline Error error_of(const std::string& code, const std::string& op, const std::string& sentence) {
  for (int c = 0; c <= static_cast<int>(ErrorCode::kIoError); ++c)
    if (to_string(static_cast<ErrorCode>(c)) == code)
      return {static_cast<ErrorCode>(c), op, sentence};
  invalid_input("Mechanism", "'{}' is not a code of a discreet.Error", code);
}

// "completed", "budget_reached" or "interrupted"; none: what the run is.
inline std::optional<run::Ended> ended_of(const std::optional<std::string>& said) {
  if (!said) return std::nullopt;
  for (const run::Ended each :
       {run::Ended::kCompleted, run::Ended::kBudgetReached, run::Ended::kInterrupted})
    if (*said == to_string(each)) return each;
  invalid_input("PrivacyEngine",
                "ended is '{}'; it must be completed, budget_reached or interrupted, or omitted",
                *said);
}

// The threads that PyTorch's operators run on, once use_openmp() was called; else empty.
inline numerics::Team& torch_team() {
  static numerics::Team team;
  return team;
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

  static void refuse_unknown(const ModelLayout& layout, const nb::dict& arrays) {
    std::vector<std::string> names;
    for (const Tensor& tensor : layout.tensors()) names.push_back(tensor.name);
    for (const auto& [key, value] : arrays) {
      std::string name;
      if (!nb::try_cast(key, name)) invalid_gradient(kOperator, "names of tensors must be text");
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const auto meant = nearest(name, names);
      invalid_gradient(kOperator, "the layout has no tensor {}{}", name,
                       meant ? fmt::format("; did you mean {}?", *meant) : "");
    }
  }

  void take(const Tensor& tensor, std::size_t i, const nb::dict& arrays) {
    if (!arrays.contains(tensor.name.c_str()))
      invalid_gradient(kOperator,
                       "the gradients of tensor {} are missing; pass an array [records, {}], or "
                       "declare the tensor public or not trainable",
                       tensor.name, fmt::join(tensor.shape, ", "));
    Rows rows;
    if (!nb::try_cast(arrays[tensor.name.c_str()], rows, /*convert=*/false) ||
        !(holds<float>(rows) || holds<double>(rows)) || (first_ && rows.dtype() != first_->dtype()))
      invalid_gradient(kOperator,
                       "tensor {} must be a C-contiguous array [records, ...] of the dtype of the "
                       "first one, float32 or float64 (nothing is copied)",
                       tensor.name);
    bool fits = rows.ndim() == tensor.shape.size() + 1;
    for (std::size_t d = 0; fits && d < tensor.shape.size(); ++d)
      fits = rows.shape(d + 1) == tensor.shape[d];
    if (!fits) {
      std::vector<std::size_t> shape;
      for (std::size_t d = 0; d < rows.ndim(); ++d) shape.push_back(rows.shape(d));
      invalid_gradient(kOperator, "tensor {} has the shape [{}]; expected [records, {}]",
                       tensor.name, fmt::join(shape, ", "), fmt::join(tensor.shape, ", "));
    }
    if (first_ && rows.shape(0) != first_->shape(0))
      invalid_gradient(kOperator, "tensor {} has {} records, but the tensors before it have {}",
                       tensor.name, rows.shape(0), first_->shape(0));
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

inline nb::tuple pair_of(const accounting::Interval& interval) {
  return nb::make_tuple(interval.lower, interval.upper);
}

// The mechanism as Python holds it. Arrays are borrowed and the interpreter is free while it
// works; threads that share one take turns.
class Session {
 public:
  // data_commitment: as kernel_replay_token() takes it. has_files: the run has a directory, so the
  // caller calls require_start() where the run starts. routing: as the mechanism takes it.
  Session(const LoadedConfig& config, const ModelLayout& layout, run::RunStreams streams,
          const Digest& data_commitment, int threads, bool has_files,
          std::optional<RoutingStats> routing = std::nullopt)
      : notes(config.notes),
        streams_(std::move(streams)),
        mechanism_(config.config, layout, streams_.mechanism(),
                   kernel_replay_token(config.config, data_commitment), threads, 1, {},
                   std::nullopt, std::move(routing)) {
    if (!has_files) mechanism_.require_start();
  }
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  template <class F>
  auto with(F&& use) {
    const Unlocked release;
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

  // Upper bounds of the norms of the first `records` rows, [rows, parts]; `scales`, as many, is set
  // to what each part is to be multiplied by.
  void take_norms(const Matrix<const double>& given, const Matrix<double>& scales,
                  std::size_t records, std::optional<double> stability) {
    const std::size_t parts = given.shape(1);
    require_shape("take_norms", scales, {given.shape(0), parts});
    if (records > given.shape(0))
      invalid_input("take_norms", "expected the norms of {} records, found {} rows", records,
                    given.shape(0));
    RecordNorms norms{records, parts, {given.data(), given.data() + records * parts}, {}, {}};
    with([&](Mechanism& m) { m.take_norms(norms, stability); });
    std::copy(norms.scales.begin(), norms.scales.end(), scales.data());
  }

  // Clipped averages in binary64, one per tensor of the layout (None: not private), made noisy in
  // place. rounded: none, or as many of binary32, set to the noisy averages. The record for the
  // trace only if it is `wanted`: it takes longer than all else that is said.
  nb::dict release_into(const nb::list& averages, const nb::list& rounded, bool wanted) {
    const std::vector<Array> wide = in_place_arrays(averages), narrow = in_place_arrays(rounded);
    const HeldGradients held{spans_of<double>(wide), spans_of<float>(narrow)};
    const numerics::Team* team = torch_team() ? &torch_team() : nullptr;
    return to_dict(with([&](Mechanism& m) {
                     StepResult step = m.release_into(held, team);
                     released(step);
                     return step;
                   }),
                   wanted);
  }

  Sampler sampler(std::uint64_t rows) const {
    // Steps that are executed again draw other batches.
    return {mechanism_.sampling(), rows, streams_.sampling(mechanism_.lineage())};
  }

  accounting::Interval epsilon(double delta) {
    return with([&](Mechanism& m) { return m.spent(delta).epsilon; });
  }

  // How the run would end here, and its claim: none if nothing is claimed.
  std::optional<accounting::Interval> claim(std::optional<run::Ended> said) {
    return with([&](Mechanism& m) { return run::claim(m, run::ended(m, said)); });
  }

  // For groups of up to `group` records together: (lower, upper).
  accounting::Interval group_epsilon(std::uint64_t group, double delta) {
    return with([&](Mechanism& m) { return m.group_epsilon(group, delta).value; });
  }

  const Mechanism& fixed() const noexcept { return mechanism_; }  // for what never changes
  const ModelLayout& layout() const noexcept { return mechanism_.layout(); }

  const std::vector<std::string> notes;

 protected:
  Mechanism& mechanism() noexcept { return mechanism_; }
  // Called after every release, before anything is made of it.
  virtual void released(const StepResult&) {}

 private:
  nb::dict to_dict(const StepResult& step, bool traced = true) const {
    const bool wide = mechanism_.config().run.compute_dtype == ComputeDtype::kFloat64;
    nb::dict gradients;
    for (std::size_t i = 0; i < layout().size(); ++i) {
      const Tensor& tensor = layout().tensors()[i];
      if (tensor.is_private() && step.gradients.is_of(layout()))
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
    if (traced) out["trace"] = to_python(trace_iter(step));
    return out;
  }

  static std::vector<Array> in_place_arrays(const nb::list& objects) {
    std::vector<Array> out;
    for (const nb::handle object : objects)
      out.push_back(object.is_none() ? Array() : in_place("release_into", object));
    return out;
  }

  template <class Real>
  static std::vector<std::span<Real>> spans_of(const std::vector<Array>& averages) {
    std::vector<std::span<Real>> out;
    for (const Array& average : averages) {
      if (average.is_valid() && !python::holds<Real>(average))
        refuse_dtype("release_into", "float64 averages and float32 roundings of them");
      out.push_back(average.is_valid() ? elements<Real>(average) : std::span<Real>());
    }
    return out;
  }

  std::mutex mutex_;
  run::RunStreams streams_;
  Mechanism mechanism_;
};

}  // namespace discreet::python
