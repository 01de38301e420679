#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "discreet/accounting/event.h"
#include "discreet/base/error.h"
#include "python/src/accounting.h"

namespace discreet::python {

using namespace discreet::accounting;
using namespace nb::literals;

Adjacency adjacency_named(const std::string& text) {
  for (const Adjacency each :
       {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne}) {
    if (to_string(each) == text) return each;
  }
  invalid_config("adjacency", "adjacency is '{}'; it must be add_remove, zero_out or replace_one",
                 text);
}

std::uint64_t count_of(const char* what, const nb::int_& value) {
  const std::uint64_t count = PyLong_AsUnsignedLongLong(value.ptr());
  if (PyErr_Occurred() != nullptr || PyBool_Check(value.ptr())) {
    PyErr_Clear();
    invalid_config(what, "{} is {}; it must be an integer from 0 to 2^64 - 1", what,
                   nb::str(value).c_str());
  }
  return count;
}

namespace {

// Counts come as Python's unbounded integers, so that one out of range is named, not misread.
template <class Member>
using Argument = std::conditional_t<std::is_integral_v<Member>, nb::int_, Member>;

template <class Member>
Member from_argument(const char* name, Argument<Member> value) {
  if constexpr (std::is_integral_v<Member>) {
    const std::uint64_t count = count_of(name, value);
    if (count > std::numeric_limits<Member>::max()) {
      invalid_config(name, "{} is {}, which is too large", name, count);
    }
    return static_cast<Member>(count);
  } else {
    return value;
  }
}

template <class Record, class Member>
struct Field {
  const char* name;
  Member Record::*member;
};
template <class Record, class Member>
Field(const char*, Member Record::*) -> Field<Record, Member>;

// An optional member may be left out.
template <class Member>
auto parameter(const char* name) {
  if constexpr (std::is_constructible_v<Member, std::nullopt_t>) {
    return nb::arg(name) = nb::none();
  } else {
    return nb::arg(name);
  }
}

// A struct as an immutable Python value: its members by position or keyword, ==, hash and repr.
template <class Record, class... Members>
nb::class_<Record> add_record(nb::module_& m, const char* name, const char* doc,
                              Field<Record, Members>... fields) {
  nb::class_<Record> record(m, name, doc);
  record.def(
      "__init__",
      [fields...](Record* self, Argument<Members>... values) {
        new (self) Record{from_argument<Members>(fields.name, std::move(values))...};
      },
      parameter<Members>(fields.name)...);
  (record.def_ro(fields.name, fields.member), ...);
  const auto repr = [name, fields...]([[maybe_unused]] nb::handle self) {
    std::string text;
    ((text += fmt::format("{}{}={}", text.empty() ? "" : ", ", fields.name,
                          nb::repr(self.attr(fields.name)).c_str())),
     ...);
    return fmt::format("{}({})", name, text);
  };
  record.def("__repr__", repr)
      .def("__hash__", [repr](nb::handle self) { return nb::hash(nb::cast(repr(self))); })
      .def("__eq__", [](const Record& self, nb::handle other) {
        return nb::isinstance<Record>(other) && self == nb::cast<const Record&>(other);
      });
  return record;
}

}  // namespace

void add_events(nb::module_& m) {
  add_record(m, "Gaussian", "N(0, σ²) noise; noise_multiplier: σ / clip norm, above 0.",
             Field{"noise_multiplier", &Gaussian::noise_multiplier});
  add_record(m, "Group", "A part of the parameters with its own clip bound and noise multiplier.",
             Field{"noise_multiplier", &Group::noise_multiplier}, Field{"clip", &Group::clip});
  add_record(
      m, "Adaptation",
      "Centred counts released together with the gradient, each with noise of this deviation.",
      Field{"counts", &Adaptation::counts}, Field{"deviation", &Adaptation::deviation});
  add_record(m, "GaussianGroups",
             "Gaussian noise on several groups of one subsample: together they equal one Gaussian.",
             Field{"groups", &GaussianGroups::groups},
             Field{"flat_clip", &GaussianGroups::flat_clip},
             Field{"adaptation", &GaussianGroups::adaptation})
      .def_prop_ro(
          "effective_noise_multiplier", &effective_noise_multiplier,
          "Multiplier of the single Gaussian that equals the groups, rounded down (less noise).");
  add_record(m, "Laplace", "Laplace noise; scale: scale / L1 sensitivity, above 0.",
             Field{"scale", &Laplace::scale});
  add_record(m, "DiscreteGaussian",
             "The discrete Gaussian on a grid; sensitivity: in grid units, above 0.",
             Field{"noise_multiplier", &DiscreteGaussian::noise_multiplier},
             Field{"sensitivity", &DiscreteGaussian::sensitivity});
  add_record(m, "RoundedGaussian", "A Gaussian sampled exactly and rounded to the grid.",
             Field{"noise_multiplier", &RoundedGaussian::noise_multiplier});
  add_record(m, "Skellam",
             "Skellam noise with a variance per coordinate, on integer vectors of bounded norms.",
             Field{"variance", &Skellam::variance}, Field{"l1", &Skellam::l1},
             Field{"l2", &Skellam::l2}, Field{"linf", &Skellam::linf});
  add_record(m, "Guarantee",
             "A mechanism that is (epsilon, delta)-DP, with nothing else known about it.",
             Field{"epsilon", &Guarantee::epsilon}, Field{"delta", &Guarantee::delta});

  add_record<NoSampling>(m, "NoSampling", "Every record, in every step.");
  add_record(m, "Poisson", "Each record independently; rate: in (0, 1].",
             Field{"rate", &Poisson::rate});
  add_record(m, "TruncatedPoisson",
             "Poisson, cut to at most `batch` records; population: declared and public.",
             Field{"rate", &TruncatedPoisson::rate}, Field{"batch", &TruncatedPoisson::batch},
             Field{"population", &TruncatedPoisson::population});
  add_record(m, "FixedSize", "Exactly `batch` of `population` records, without replacement.",
             Field{"batch", &FixedSize::batch}, Field{"population", &FixedSize::population});
  add_record(m, "BallsAndBins",
             "Each record in one random batch of `batches`; the event is the epoch.",
             Field{"batches", &BallsAndBins::batches});
  add_record(m, "ShuffledEpoch",
             "A permutation cut into `batches` batches; the event is the epoch.",
             Field{"batches", &ShuffledEpoch::batches});

  nb::class_<Event>(m, "Event", R"(What a mechanism releases: noise, who takes part, adjacency.

adjacency: "add_remove", "zero_out" or "replace_one". Values out of range, and the three not fitting
together, are refused with discreet.Error.)")
      .def(
          "__init__",
          [](Event* self, Mechanism mechanism, Sampling sampling, const std::string& adjacency) {
            new (self) Event(std::move(mechanism), std::move(sampling), adjacency_named(adjacency));
          },
          "mechanism"_a, "sampling"_a = NoSampling{}, nb::kw_only(), "adjacency"_a = "add_remove")
      .def_prop_ro("mechanism", [](const Event& self) { return self.mechanism(); })
      .def_prop_ro("sampling", [](const Event& self) { return self.sampling(); })
      .def_prop_ro("adjacency",
                   [](const Event& self) { return std::string(to_string(self.adjacency())); })
      .def(
          "encode", [](const Event& self) { return to_bytes(encode(self)); },
          "Deterministic CBOR: equal events have equal bytes.")
      .def_static(
          "decode", [](const nb::bytes& bytes) { return decode_event(view(bytes)); }, "encoded"_a)
      .def("__getstate__", [](const Event& self) { return to_bytes(encode(self)); })
      .def(
          "__setstate__",
          [](Event& self, const nb::bytes& bytes) { new (&self) Event(decode_event(view(bytes))); })
      .def("__str__", &describe)
      .def("__repr__",
           [](nb::handle self) {
             return fmt::format(
                 "Event({}, {}, adjacency={})", nb::repr(self.attr("mechanism")).c_str(),
                 nb::repr(self.attr("sampling")).c_str(), nb::repr(self.attr("adjacency")).c_str());
           })
      .def("__hash__", [](const Event& self) { return nb::hash(to_bytes(encode(self))); })
      .def("__eq__", [](const Event& self, nb::handle other) {
        return nb::isinstance<Event>(other) && self == nb::cast<const Event&>(other);
      });
}

}  // namespace discreet::python
