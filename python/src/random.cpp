#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>

#include "discreet/random/discrete.h"
#include "discreet/random/gaussian.h"
#include "discreet/random/laplace.h"
#include "discreet/random/skellam.h"
#include "discreet/random/subsets.h"
#include "python/src/array.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::random;
using discreet::python::elements;
using discreet::python::holds;
using discreet::python::in_place;
using discreet::python::in_place_of;

namespace {

constexpr const char* kFloats = "float64 or float32";

Algorithm algorithm_of(const std::string& name) {
  if (name == "philox4x32") return Algorithm::kPhilox4x32;
  if (name == "aes128ctr") return Algorithm::kAes128Ctr;
  if (name == "chacha20") return Algorithm::kChaCha20;
  invalid_input("Generator", "unknown algorithm '{}'; expected philox4x32, aes128ctr or chacha20",
                name);
}

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kPhilox4x32: return "philox4x32";
    case Algorithm::kAes128Ctr: return "aes128ctr";
    case Algorithm::kChaCha20: return "chacha20";
  }
  return "";
}

using Fraction = std::pair<std::uint64_t, std::uint64_t>;

// Calls f on the elements as float64 or float32, without the interpreter's lock.
template <class F>
void on_floats(const char* op, nb::handle object, F&& f) {
  const auto array = in_place(op, object);
  if (holds<double>(array)) {
    const auto x = elements<double>(array);
    const python::Unlocked release;
    f(x);
  } else if (holds<float>(array)) {
    const auto x = elements<float>(array);
    const python::Unlocked release;
    f(x);
  } else {
    python::refuse_dtype(op, kFloats);
  }
}

template <class T, class F>
void on_elements(const char* op, nb::handle object, const char* wanted, F&& f) {
  const auto x = in_place_of<T>(op, object, wanted);
  const python::Unlocked release;
  f(x);
}

using Family = void (*)(const Generator&, const Position&, Rational, std::span<std::int64_t>, int);

template <Family family>
auto fill_integers(const char* op) {
  return [op](const Generator& g, nb::object out, Fraction parameter, std::uint64_t step,
              std::uint64_t tensor, std::uint64_t coordinate, int threads) {
    const Position position = Position::at(step, tensor, coordinate);
    on_elements<std::int64_t>(op, out, "int64", [&](std::span<std::int64_t> values) {
      family(g, position, {parameter.first, parameter.second}, values, threads);
    });
  };
}

}  // namespace

void discreet::python::add_random(nb::module_& m) {
  nb::class_<Generator> generator(m, "Generator", R"(One stream of random numbers.

Values depend on the key, the stream, the step, the tensor and the coordinate only: not on threads,
on ranks, or on how a range is cut into calls. Arrays are written in place; one that is not
writable, contiguous and of the right dtype is refused with discreet.Error, never copied.)");

  generator
      .def_static(
          "secure",
          [](const std::string& stream) {
            return Generator::secure(Key::from_system().derive(stream));
          },
          "stream"_a = std::string(stream::kNoise), "A cryptographic generator with a fresh key.")
      .def_static(
          "insecure",
          [](const nb::int_& seed, const std::string& stream, const std::string& algorithm) {
            const Key key = Key::from_seed(parse_seed(nb::str(seed).c_str()));
            return Generator(algorithm_of(algorithm), key.derive(stream));
          },
          "seed"_a, "stream"_a = std::string(stream::kNoise), "algorithm"_a = "philox4x32",
          "A repeatable generator from a seed in {0 … 2^64 − 1}: for tests, never private.")
      .def_prop_ro("algorithm", [](const Generator& g) { return name_of(g.algorithm()); })
      .def("__repr__", [](const Generator& g) {
        return std::string("<discreet.random.Generator ") + name_of(g.algorithm()) + ">";
      });

  generator
      .def(
          "fill_gaussian",
          [](const Generator& g, nb::object out, double stddev, std::uint64_t step,
             std::uint64_t tensor, std::uint64_t coordinate, int threads) {
            const Position position = Position::at(step, tensor, coordinate);
            on_floats("fill_gaussian", out,
                      [&](auto x) { fill_gaussian(g, position, stddev, x, threads); });
          },
          "out"_a, "stddev"_a = 1.0, nb::kw_only(), "step"_a = 0, "tensor"_a = 0,
          "coordinate"_a = 0, "threads"_a = 1,
          "out = stddev · N(0, 1), float64 or float32 (rounded from binary64).")
      .def(
          "add_gaussian",
          [](const Generator& g, nb::object x, double stddev, std::uint64_t step,
             std::uint64_t tensor, std::uint64_t coordinate, int threads) {
            const Position position = Position::at(step, tensor, coordinate);
            on_floats("add_gaussian", x,
                      [&](auto values) { add_gaussian(g, position, stddev, values, threads); });
          },
          "x"_a, "stddev"_a, nb::kw_only(), "step"_a = 0, "tensor"_a = 0, "coordinate"_a = 0,
          "threads"_a = 1,
          "x += stddev · N(0, 1) in binary64 arithmetic, without a temporary array.")
      .def(
          "fill_gaussian_native32",
          [](const Generator& g, nb::object out, float stddev, std::uint64_t step,
             std::uint64_t tensor, std::uint64_t coordinate, int threads) {
            const Position position = Position::at(step, tensor, coordinate);
            on_elements<float>("fill_gaussian_native32", out, "float32", [&](std::span<float> x) {
              fill_gaussian_native32(g, position, stddev, x, threads);
            });
          },
          "out"_a, "stddev"_a = 1.0f, nb::kw_only(), "step"_a = 0, "tensor"_a = 0,
          "coordinate"_a = 0, "threads"_a = 1,
          "Faster but weaker: binary32 throughout, tail 6.8 sigma. Not for certified runs.")
      .def(
          "fill_laplace",
          [](const Generator& g, nb::object out, double scale, std::uint64_t step,
             std::uint64_t tensor, std::uint64_t coordinate, int threads) {
            const Position position = Position::at(step, tensor, coordinate);
            on_elements<double>("fill_laplace", out, "float64", [&](std::span<double> x) {
              fill_laplace(g, position, scale, x, threads);
            });
          },
          "out"_a, "scale"_a = 1.0, nb::kw_only(), "step"_a = 0, "tensor"_a = 0, "coordinate"_a = 0,
          "threads"_a = 1, "out = Laplace noise of the given scale, float64.");

  const auto add_family = [&](const char* name, const char* parameter, const char* doc, auto f) {
    generator.def(name, f, "out"_a, nb::arg(parameter), nb::kw_only(), "step"_a = 0, "tensor"_a = 0,
                  "coordinate"_a = 0, "threads"_a = 1, doc);
  };
  add_family("fill_discrete_laplace", "scale",
             "int64 noise with P(y) ∝ exp(−|y|/scale), exact; scale = (numerator, denominator).",
             fill_integers<discrete_laplace>("fill_discrete_laplace"));
  add_family("fill_discrete_gaussian", "variance",
             "int64 noise with P(y) ∝ exp(−y²/(2·variance)), exact; (numerator, denominator).",
             fill_integers<discrete_gaussian>("fill_discrete_gaussian"));
  add_family(
      "fill_rounded_gaussian", "stddev",
      "int64: stddev · N(0, 1) rounded to the nearest integer, exact; (numerator, denominator).",
      fill_integers<rounded_gaussian>("fill_rounded_gaussian"));
  add_family("fill_skellam", "variance",
             "int64 Skellam noise of the given variance; (numerator, denominator).",
             fill_integers<skellam>("fill_skellam"));

  generator
      .def(
          "poisson_subset",
          [](const Generator& g, std::uint64_t population, double rate, std::uint64_t step,
             std::uint64_t begin, int threads) {
            const Position position = Position::at(step, 0);
            std::vector<std::uint64_t> subset;
            {
              const python::Unlocked release;
              subset = poisson_subset(g, position, {begin, population}, rate, threads);
            }
            return python::to_numpy(std::move(subset));
          },
          "population"_a, "rate"_a, nb::kw_only(), "step"_a = 0, "begin"_a = 0, "threads"_a = 1,
          "The selected records of begin … population − 1, each with probability exactly rate.")
      .def(
          "permutation",
          [](const Generator& g, std::uint64_t n, std::uint64_t step) {
            return python::to_numpy(permutation(g, Position::at(step, 0), n));
          },
          "n"_a, nb::kw_only(), "step"_a = 0, "A uniformly random order of 0 … n − 1.")
      .def(
          "fixed_size_subset",
          [](const Generator& g, std::uint64_t population, std::uint64_t size, std::uint64_t step) {
            return python::to_numpy(fixed_size_subset(g, Position::at(step, 0), population, size));
          },
          "population"_a, "size"_a, nb::kw_only(), "step"_a = 0,
          "A uniformly random subset of exactly `size` records, ascending.")
      .def(
          "assign_bins",
          [](const Generator& g, nb::object out, std::uint32_t bins, std::uint64_t epoch,
             std::uint64_t first, int threads) {
            const Position position = Position::at(epoch, 0, first);
            on_elements<std::uint32_t>(
                "assign_bins", out, "uint32",
                [&](std::span<std::uint32_t> x) { assign_bins(g, position, bins, x, threads); });
          },
          "out"_a, "bins"_a, nb::kw_only(), "epoch"_a = 0, "first"_a = 0, "threads"_a = 1,
          "out[i] = the bin of record first + i in this epoch, uint32.");
}
