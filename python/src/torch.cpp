#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "discreet/mechanism/clip/ghost/pair_norms.h"
#include "discreet/mechanism/clip/ghost/record_sums.h"
#include "discreet/mechanism/clip/ghost/record_weights.h"
#include "python/src/gil.h"
#include "python/src/rooms.h"
#include "python/src/session.h"

// What discreet.torch asks of the core between the layers. Tensors come by DLPack, which costs 1 to
// 2 microseconds each; a tensor of another type, shape, order or device is rejected.
namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::mechanism;
using discreet::python::in_precision;
using discreet::python::Matrix;
using discreet::python::require_shape;
using discreet::python::torch_team;
using discreet::python::Vector;

namespace {

// Arrays that are read have the model's precision, float32 or float64, and three or any number of
// dimensions. Sums are in float64.
using Factor = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using AnyFactor = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Sum = nb::ndarray<double, nb::c_contig, nb::device::cpu>;

template <class Real, class A>
const Real* data(const A& array) {
  return static_cast<const Real*>(array.data());
}
void require_size(const char* op, const Sum& sum, std::size_t expected) {
  if (sum.size() != expected)
    invalid_input(op, "expected a sum of {} numbers, found {}", expected, sum.size());
}
std::span<double> values(const Vector<double>& squares) {
  return {squares.data(), squares.shape(0)};
}

// GNU OpenMP's entry: team(data) on `threads` threads, the caller's own pool.
using OpenMpParallel = void (*)(void (*team)(void*), void* data, unsigned threads, unsigned flags);

// Tasks run on the pool of the OpenMP library at `path`, which the process has loaded.
bool use_openmp(const std::string& path, unsigned threads) {
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const auto parallel = reinterpret_cast<OpenMpParallel>(::dlsym(library, "GOMP_parallel"));
  if (parallel == nullptr) return false;
  python::torch_team() = [parallel, threads](std::size_t n,
                                             const std::function<void(std::size_t)>& task) {
    struct Shared {
      std::atomic<std::size_t> next;
      std::size_t n;
      const std::function<void(std::size_t)>& task;
    } shared{0, n, task};
    parallel(
        [](void* data) {
          auto& all = *static_cast<Shared*>(data);
          for (std::size_t k = all.next++; k < all.n; k = all.next++) all.task(k);
        },
        &shared, threads, 0);
  };
  return true;
}

const numerics::Team* team() { return torch_team() ? &torch_team() : nullptr; }

void outer_squares(const Vector<double>& squares, const Factor& a, const Factor& g, bool bias) {
  constexpr const char* op = "add_outer_squares";
  const std::size_t records = a.shape(0), positions = a.shape(1);
  require_shape(op, squares, {records});
  require_shape(op, g, {records, positions, g.shape(2)});
  in_precision(
      op,
      [&]<class Real>(Real) {
        const python::Unlocked release;
        add_outer_squares(OuterFactors<Real>{data<Real>(a), data<Real>(g), records, positions,
                                             a.shape(2), g.shape(2), bias},
                          team(), values(squares));
      },
      a, g);
}

void placed_squares(const Vector<double>& squares, const Factor& g,
                    const std::optional<Matrix<const std::int64_t>>& places) {
  constexpr const char* op = "add_placed_squares";
  const std::size_t records = g.shape(0), positions = g.shape(1);
  require_shape(op, squares, {records});
  if (places) require_shape(op, *places, {records, positions});
  in_precision(
      op,
      [&]<class Real>(Real) {
        const python::Unlocked release;
        add_placed_squares(PlacedRows<Real>{data<Real>(g), places ? places->data() : nullptr,
                                            records, positions, g.shape(2)},
                           team(), values(squares));
      },
      g);
}

// rows: [records, ...].
void row_squares(const Vector<double>& squares, const AnyFactor& rows) {
  constexpr const char* op = "add_row_squares";
  const std::size_t records = squares.shape(0);
  if (rows.ndim() == 0 || rows.shape(0) != records)
    invalid_input(op, "expected an array of {} rows, found {}", records,
                  rows.ndim() == 0 ? 0 : rows.shape(0));
  in_precision(
      op,
      [&]<class Real>(Real) {
        const python::Unlocked release;
        add_row_squares(data<Real>(rows), records == 0 ? 0 : rows.size() / records,
                        values(squares));
      },
      rows);
}

// sum: [outputs, inputs], or as many numbers in another shape.
void outer_sum(const Sum& sum, const Vector<const double>& weights, const Factor& a,
               const Factor& g, bool first) {
  constexpr const char* op = "add_outer_sum";
  const std::size_t records = a.shape(0), positions = a.shape(1);
  const std::size_t inputs = a.shape(2), outputs = g.shape(2);
  require_shape(op, weights, {records});
  require_shape(op, g, {records, positions, outputs});
  require_size(op, sum, inputs * outputs);
  in_precision(
      op,
      [&]<class Real>(Real) {
        const python::Unlocked release;
        add_outer_sum(
            OuterFactors<Real>{data<Real>(a), data<Real>(g), records, positions, inputs, outputs},
            {weights.data(), records}, team(), first, {sum.data(), sum.size()});
      },
      a, g);
}

// rows: of the sum, which has as many rows of g's width.
void placed_sum(const Sum& sum, const Vector<const double>& weights, const Factor& g,
                const std::optional<Matrix<const std::int64_t>>& places, std::size_t rows) {
  constexpr const char* op = "add_placed_sum";
  const std::size_t records = g.shape(0), positions = g.shape(1), width = g.shape(2);
  require_shape(op, weights, {records});
  if (places) require_shape(op, *places, {records, positions});
  require_size(op, sum, rows * width);
  in_precision(
      op,
      [&]<class Real>(Real) {
        const python::Unlocked release;
        add_placed_sum(PlacedRows<Real>{data<Real>(g), places ? places->data() : nullptr, records,
                                        positions, width},
                       {weights.data(), records}, team(), {sum.data(), sum.size()});
      },
      g);
}

}  // namespace

void discreet::python::add_torch(nb::module_& m) {
  m.def("use_openmp", &use_openmp, "path"_a, "threads"_a,
        "Runs the core's work for PyTorch on the threads of this OpenMP library; False if it is "
        "not loaded.");
  m.def("add_outer_squares", &outer_squares, "squares"_a.noconvert(), "a"_a.noconvert(),
        "g"_a.noconvert(), "bias"_a);
  m.def("add_placed_squares", &placed_squares, "squares"_a.noconvert(), "g"_a.noconvert(),
        "places"_a.noconvert().none());
  m.def("add_row_squares", &row_squares, "squares"_a.noconvert(), "rows"_a.noconvert());
  m.def("add_outer_sum", &outer_sum, "sum"_a.noconvert(), "weights"_a.noconvert(),
        "a"_a.noconvert(), "g"_a.noconvert(), "first"_a);
  m.def("add_placed_sum", &placed_sum, "sum"_a.noconvert(), "weights"_a.noconvert(),
        "g"_a.noconvert(), "places"_a.noconvert().none(), "rows"_a);
  m.def(
      "norms_of",
      [](const Matrix<const double>& squares, const Matrix<double>& norms, double factor) {
        const std::size_t parts = squares.shape(0), records = squares.shape(1);
        require_shape("norms_of", norms, {records, parts});
        norms_from_squares({squares.data(), squares.size()}, parts, factor,
                           {norms.data(), norms.size()});
      },
      "squares"_a.noconvert(), "norms"_a.noconvert(), "factor"_a);
  m.def(
      "weights_of",
      [](const Matrix<const double>& norms, const Matrix<const double>& scales,
         const Matrix<double>& weights, double factor, bool wide) {
        constexpr const char* op = "weights_of";
        const std::size_t records = norms.shape(0), parts = norms.shape(1);
        require_shape(op, scales, {records, parts});
        require_shape(op, weights, {parts, records});
        weights_from_scales({norms.data(), norms.size()}, {scales.data(), scales.size()}, parts,
                            factor, wide, {weights.data(), weights.size()});
      },
      "norms"_a.noconvert(), "scales"_a.noconvert(), "weights"_a.noconvert(), "factor"_a, "wide"_a);
  m.def(
      "clipped_weights",
      [](const Vector<const double>& squares, const Vector<double>& weights, double bound,
         double mean_of, double factor, bool wide) {
        require_shape("clipped_weights", weights, {squares.shape(0)});
        clipped_weights({squares.data(), squares.size()}, bound, mean_of, factor, wide,
                        {weights.data(), weights.size()});
      },
      "squares"_a.noconvert(), "weights"_a.noconvert(), "bound"_a, "mean_of"_a, "factor"_a,
      "wide"_a);
}
