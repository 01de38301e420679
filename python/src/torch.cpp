#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "discreet/mechanism/pair_norms.h"
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

// Of the model's precision, float32 or float64: what is read, of three dimensions or any, and what
// is written.
using Factor = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using AnyFactor = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<nb::c_contig, nb::device::cpu>;

template <class Real, class A>
const Real* data(const A& array) {
  return static_cast<const Real*>(array.data());
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

const Team* team() { return torch_team() ? &torch_team() : nullptr; }

void outer_squares(const Vector<double>& squares, const Factor& a, const Factor& g, bool bias) {
  constexpr const char* op = "add_outer_squares";
  const std::size_t records = a.shape(0), positions = a.shape(1);
  require_shape(op, squares, {records});
  require_shape(op, g, {records, positions, g.shape(2)});
  in_precision(
      op,
      [&]<class Real>(Real) {
        const nb::gil_scoped_release release;
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
        const nb::gil_scoped_release release;
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
    throw Error(ErrorCode::kInvalidInput, op,
                fmt::format("expected an array of {} rows, found {}", records,
                            rows.ndim() == 0 ? 0 : rows.shape(0)));
  in_precision(
      op,
      [&]<class Real>(Real) {
        const nb::gil_scoped_release release;
        add_row_squares(data<Real>(rows), records == 0 ? 0 : rows.size() / records,
                        values(squares));
      },
      rows);
}

// Roundings of these few operations, and upwards of adding the squares of up to 2^12 tensors.
constexpr double kUp = 1 + 0x1p-41, kDown = 1 - 0x1p-50;

// norms [records, parts] of squares [parts, records].
void norms_of(const double* squares, double* norms, std::size_t records, std::size_t parts,
              double factor) {
  for (std::size_t i = 0; i < records; ++i)
    for (std::size_t g = 0; g < parts; ++g)
      norms[i * parts + g] = std::sqrt(squares[g * records + i]) * (factor * kUp);
}

// weights [parts, records], in the precision of the model, of norms and scales [records, parts];
// returns the records with a norm that is not finite, whose weights are 0.
template <class Real>
std::vector<std::size_t> weights_of(const double* norms, const double* scales, Real* weights,
                                    std::size_t records, std::size_t parts, double factor) {
  constexpr bool kWide = std::is_same_v<Real, double>;
  const double down = factor * (kWide ? kDown : 1 - 0x1p-22);
  std::vector<std::size_t> left_out;
  for (std::size_t i = 0; i < records; ++i) {
    bool finite = true;
    for (std::size_t g = 0; g < parts; ++g) finite = finite && std::isfinite(norms[i * parts + g]);
    if (!finite) left_out.push_back(i);
    for (std::size_t g = 0; g < parts; ++g) {
      double weight = finite ? scales[i * parts + g] * down : 0;
      // So small a number has few bits left in float32, and could be rounded up by half.
      if (!(weight >= 0x1p-60)) weight = 0;
      weights[g * records + i] = static_cast<Real>(weight);
    }
  }
  return left_out;
}

// The weights of one part, of its squares.
template <class Real>
std::vector<std::size_t> clipped_weights(const double* squares, Real* weights, std::size_t records,
                                         double bound, double mean_of, double factor) {
  std::vector<double> norms(records), scales(records);
  norms_of(squares, norms.data(), records, 1, mean_of);
  for (std::size_t i = 0; i < records; ++i)  // as Clip_v1 scales, from below
    scales[i] = std::min(1.0, bound / (norms[i] + kEpsClip) * kDown);
  return weights_of(norms.data(), scales.data(), weights, records, 1, factor);
}

}  // namespace

void discreet::python::add_torch(nb::module_& m) {
  m.def("use_openmp", &use_openmp, "path"_a, "threads"_a,
        "The core works for PyTorch on the threads of this OpenMP library; False if it is not "
        "loaded.");
  m.def("add_outer_squares", &outer_squares, "squares"_a.noconvert(), "a"_a.noconvert(),
        "g"_a.noconvert(), "bias"_a);
  m.def("add_placed_squares", &placed_squares, "squares"_a.noconvert(), "g"_a.noconvert(),
        "places"_a.noconvert().none());
  m.def("add_row_squares", &row_squares, "squares"_a.noconvert(), "rows"_a.noconvert());
  m.def(
      "norms_of",
      [](const Matrix<const double>& squares, const Matrix<double>& norms, double factor) {
        const std::size_t parts = squares.shape(0), records = squares.shape(1);
        require_shape("norms_of", norms, {records, parts});
        norms_of(squares.data(), norms.data(), records, parts, factor);
      },
      "squares"_a.noconvert(), "norms"_a.noconvert(), "factor"_a);
  m.def(
      "weights_of",
      [](const Matrix<const double>& norms, const Matrix<const double>& scales,
         const Weights& weights, double factor) {
        constexpr const char* op = "weights_of";
        const std::size_t records = norms.shape(0), parts = norms.shape(1);
        require_shape(op, scales, {records, parts});
        require_shape(op, weights, {parts, records});
        return in_precision(
            op,
            [&]<class Real>(Real) {
              return weights_of(norms.data(), scales.data(), static_cast<Real*>(weights.data()),
                                records, parts, factor);
            },
            weights);
      },
      "norms"_a.noconvert(), "scales"_a.noconvert(), "weights"_a.noconvert(), "factor"_a);
  m.def(
      "clipped_weights",
      [](const Vector<const double>& squares, const Weights& weights, double bound, double mean_of,
         double factor) {
        constexpr const char* op = "clipped_weights";
        require_shape(op, weights, {squares.shape(0)});
        return in_precision(
            op,
            [&]<class Real>(Real) {
              return clipped_weights(squares.data(), static_cast<Real*>(weights.data()),
                                     squares.shape(0), bound, mean_of, factor);
            },
            weights);
      },
      "squares"_a.noconvert(), "weights"_a.noconvert(), "bound"_a, "mean_of"_a, "factor"_a);
}
