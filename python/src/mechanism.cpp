#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <variant>

#include "discreet/base/text/nearest.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "python/src/array.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::mechanism;
using discreet::python::to_numpy;

namespace {

constexpr const char* kOperator = "clip";

using Bounds = std::variant<double, std::map<std::string, double>>;
using Names = std::map<std::string, std::string>;

// The result, in the form Python reads it. Sums are views of one array.
struct Clipped {
  std::shared_ptr<GradientSum> sum;
  ModelLayout layout;
  std::vector<std::string> parts;
  RecordNorms norms;
};

Cut cut_of(const std::string& strategy) {
  const std::vector<std::string> names = {"per_sample", "per_layer", "per_group",
                                          "per_tensor", "hybrid",    "peft_targeted"};
  const Cut cuts[] = {Cut::kFlat, Cut::kLayer, Cut::kGroup, Cut::kTensor, Cut::kGroup, Cut::kFlat};
  const auto found = std::find(names.begin(), names.end(), strategy);
  if (found != names.end()) return cuts[found - names.begin()];
  const auto meant = nearest(strategy, names);
  invalid_config(kOperator, "unknown strategy '{}'{}; expected {}", strategy,
                 meant ? fmt::format(" (did you mean {}?)", *meant) : "", fmt::join(names, ", "));
}

Nonfinite nonfinite_of(const std::string& policy) {
  if (policy == "abort") return Nonfinite::kAbort;
  if (policy == "zero") return Nonfinite::kZero;
  invalid_config(kOperator, "nonfinite is '{}'; it must be abort or zero", policy);
}

template <class Real>
using Rows = nb::ndarray<const Real, nb::c_contig, nb::device::cpu>;

// Borrows the arrays of the dictionary, all of one dtype, none copied.
template <class Real>
struct Borrowed {
  std::vector<Tensor> tensors;
  PerSampleGradients<Real> gradients;
  std::vector<Rows<Real>> keep;

  Borrowed(const nb::dict& arrays, const Names& groups) {
    for (const auto& [key, value] : arrays) {
      std::string name;
      if (!nb::try_cast(key, name)) invalid_gradient(kOperator, "names of tensors must be text");
      Rows<Real> rows;
      if (!nb::try_cast(value, rows, /*convert=*/false) || rows.ndim() == 0)
        invalid_gradient(kOperator,
                         "tensor {} must be a C-contiguous array [records, ...] of the dtype of "
                         "the first one, float32 or float64 (nothing is copied)",
                         name);
      if (keep.empty()) gradients.records = rows.shape(0);
      if (rows.shape(0) != gradients.records)
        invalid_gradient(kOperator, "tensor {} has {} records, but tensor {} has {}", name,
                         rows.shape(0), tensors[0].name, gradients.records);
      Tensor tensor{.name = name};
      for (std::size_t i = 1; i < rows.ndim(); ++i) tensor.shape.push_back(rows.shape(i));
      if (const auto group = groups.find(name); group != groups.end()) tensor.group = group->second;
      tensors.push_back(std::move(tensor));
      gradients.tensors.emplace_back(rows.data(), rows.size());
      keep.push_back(std::move(rows));
    }
    for (const auto& [name, group] : groups)
      if (std::none_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& tensor) { return tensor.name == name; }))
        invalid_config(kOperator, "groups: unknown tensor {}", name);
  }
};

template <class Real>
Clipped clip_arrays(const nb::dict& arrays, const Bounds& norm, const std::string& strategy,
                    std::optional<double> flat_norm, const Names& groups,
                    const std::vector<std::string>& public_modules, const ClipOptions& options) {
  const Borrowed<Real> borrowed(arrays, groups);
  ModelLayout layout = ModelLayout(borrowed.tensors).with_public(public_modules);
  const Cut cut = cut_of(strategy);
  ClipPlan plan =
      std::visit([&](const auto& bound) { return clip_plan(layout, cut, bound); }, norm);
  if (flat_norm.has_value() != (strategy == "hybrid"))
    invalid_config(kOperator,
                   "flat_norm is the bound over all groups of strategy hybrid; other strategies do "
                   "not have it");
  plan.flat_clip = flat_norm;
  auto sum = std::make_shared<GradientSum>(layout);
  RecordNorms norms;
  {
    const python::Unlocked release;
    norms = clip_per_sample(layout, borrowed.gradients, plan, options, *sum);
  }
  return {std::move(sum), std::move(layout), std::move(plan.partition.names), std::move(norms)};
}

// Upper bounds of the norms of rows; +inf for one that is not finite.
template <class Real>
auto norms_of_rows(const nb::ndarray<const Real, nb::ndim<2>, nb::c_contig, nb::device::cpu>& rows,
                   int threads) {
  RecordNorms norms;
  {
    const std::span<const Real> values(rows.data(), rows.size());
    const std::size_t records = rows.shape(0), length = rows.shape(1);
    const python::Unlocked release;
    const ModelLayout layout({{.name = "row", .shape = {length}}});
    const ClipOptions options{.nonfinite = Nonfinite::kZero, .threads = threads};
    norms = per_sample_norms(layout, PerSampleGradients<Real>{records, {values}},
                             partition(layout, Cut::kFlat), options);
    for (std::size_t i = 0; i < records; ++i)
      if (norms.zeroed[i] != 0) norms.norms[i] = std::numeric_limits<double>::infinity();
  }
  return to_numpy(std::move(norms.norms));
}

template <class T>
auto records_by_parts(const Clipped& c, const std::vector<T>& values) {
  auto copy = std::make_unique<std::vector<T>>(values);
  const nb::capsule owner(copy.get(),
                          [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<2>>(copy.release()->data(),
                                                {c.norms.records, c.norms.parts}, owner);
}

}  // namespace

void discreet::python::add_mechanism(nb::module_& m) {
  nb::class_<Clipped>(m, "Clipped", R"(What clip() returns.

Everything here is raw: confidential until noise of the right size is added to `sum`.)")
      .def_prop_ro(
          "sum",
          [](const Clipped& c) {
            nb::dict out;
            for (std::size_t i = 0; i < c.layout.size(); ++i) {
              if (!c.layout.tensors()[i].is_private()) continue;
              const auto& lengths = c.layout.tensors()[i].shape;
              const std::vector<std::size_t> shape(lengths.begin(), lengths.end());
              const nb::capsule owner(
                  new std::shared_ptr<GradientSum>(c.sum),
                  [](void* p) noexcept { delete static_cast<std::shared_ptr<GradientSum>*>(p); });
              out[c.layout.tensors()[i].name.c_str()] =
                  nb::ndarray<nb::numpy, double>(c.sum->tensor(i).data(), shape.size(),
                                                 shape.data(), owner)
                      .cast();
            }
            return out;
          },
          "The sums of the clipped gradients by tensor, float64, except public modules. They are "
          "views of one array: additions to them persist.")
      .def_prop_ro(
          "parts", [](const Clipped& c) { return c.parts; },
          "The names of the parts with their own bounds, in order.")
      .def_prop_ro(
          "norms", [](const Clipped& c) { return records_by_parts(c, c.norms.norms); },
          nb::rv_policy::automatic, "[records, parts]: upper bounds of the norms.")
      .def_prop_ro(
          "scales", [](const Clipped& c) { return records_by_parts(c, c.norms.scales); },
          nb::rv_policy::automatic, "[records, parts]: the factor applied to each part.")
      .def_prop_ro(
          "zeroed",
          [](const Clipped& c) {
            std::vector<std::size_t> records;
            for (std::size_t i = 0; i < c.norms.records; ++i)
              if (c.norms.zeroed[i] != 0) records.push_back(i);
            return records;
          },
          "The records that were left out because they were not finite.")
      .def("__repr__", [](const Clipped& c) {
        return fmt::format("<discreet.mechanism.Clipped {} records, {} parts>", c.norms.records,
                           c.norms.parts);
      });

  const char* rows_doc =
      "Upper bounds, in float64, of the Euclidean norms of the rows of [records, length]; inf for "
      "a "
      "row that is not finite.";
  m.def("row_norms", &norms_of_rows<float>, "rows"_a.noconvert(), "threads"_a = 1, rows_doc);
  m.def("row_norms", &norms_of_rows<double>, "rows"_a.noconvert(), "threads"_a = 1, rows_doc);

  m.def(
      "clip",
      [](const nb::dict& gradients, const Bounds& norm, const std::string& strategy,
         std::optional<double> flat_norm, const Names& groups,
         const std::vector<std::string>& public_modules, const std::string& nonfinite,
         std::size_t max_microbatch, int threads) {
        const ClipOptions options{.nonfinite = nonfinite_of(nonfinite),
                                  .max_microbatch = max_microbatch,
                                  .threads = threads};
        Rows<float> first;
        const bool narrow = gradients.size() > 0 &&
                            nb::try_cast((*gradients.begin()).second, first, /*convert=*/false);
        return (narrow ? clip_arrays<float> : clip_arrays<double>)(gradients, norm, strategy,
                                                                   flat_norm, groups,
                                                                   public_modules, options);
      },
      "gradients"_a, "norm"_a, nb::kw_only(), "strategy"_a = "per_sample",
      "flat_norm"_a = nb::none(), "groups"_a = Names(),
      "public_modules"_a = std::vector<std::string>(), "nonfinite"_a = "abort",
      "max_microbatch"_a = ClipOptions().max_microbatch, "threads"_a = ClipOptions().threads,
      R"(Clips per-sample gradients and sums them.

gradients: name → array [records, ...], all float32 or all float64, C-contiguous; never copied.
    A tensor "a.b.weight" is of the layer "a.b"; its group is its layer unless `groups` names one.
norm: the bound on the Euclidean norm of a record, or a dictionary of bounds by part.
strategy: what has a bound of its own: per_sample (everything together; peft_targeted is the same),
    per_layer, per_group, per_tensor, or hybrid: per group, inside flat_norm over all groups.
public_modules: names of modules that receive no private gradient: not read, not in the sum.
nonfinite: abort (discreet.Error, INVALID_GRADIENT) or zero: the record contributes nothing.
The result depends neither on max_microbatch nor on threads.)");
}
