#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "discreet/mechanism/pair_norms.h"
#include "discreet/mechanism/record_sums.h"
#include "python/src/rooms.h"
#include "python/src/session.h"

// What discreet.torch asks of the core between the layers: tensors are given by address, because
// they are small and many. Its callers see to contiguity and precision.
namespace nb = nanobind;
using namespace nb::literals;
using namespace discreet;
using namespace discreet::mechanism;
using discreet::python::pointer;
using discreet::python::torch_team;

namespace {

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

void outer_squares(std::uintptr_t squares, std::uintptr_t a, std::uintptr_t g, std::size_t records,
                   std::size_t positions, std::size_t inputs, std::size_t outputs, bool bias,
                   bool wide) {
  const nb::gil_scoped_release release;
  const std::span<double> into(pointer<double>(squares), records);
  const auto run = [&]<class Real>(Real) {
    add_outer_squares(OuterFactors<Real>{pointer<const Real>(a), pointer<const Real>(g), records,
                                         positions, inputs, outputs, bias},
                      team(), into);
  };
  wide ? run(double{}) : run(float{});
}

// places: of int64, or 0.
void placed_squares(std::uintptr_t squares, std::uintptr_t g, std::uintptr_t places,
                    std::size_t records, std::size_t positions, std::size_t width, bool wide) {
  const nb::gil_scoped_release release;
  const std::span<double> into(pointer<double>(squares), records);
  const auto run = [&]<class Real>(Real) {
    add_placed_squares(PlacedRows<Real>{pointer<const Real>(g), pointer<const std::int64_t>(places),
                                        records, positions, width},
                       team(), into);
  };
  wide ? run(double{}) : run(float{});
}

void row_squares(std::uintptr_t squares, std::uintptr_t rows, std::size_t records,
                 std::size_t length, bool wide) {
  const nb::gil_scoped_release release;
  const std::span<double> into(pointer<double>(squares), records);
  wide ? add_row_squares(pointer<const double>(rows), length, into)
       : add_row_squares(pointer<const float>(rows), length, into);
}

void outer_sum(std::uintptr_t sum, std::uintptr_t weights, std::uintptr_t a, std::uintptr_t g,
               std::size_t records, std::size_t positions, std::size_t inputs, std::size_t outputs,
               bool first, bool wide) {
  const nb::gil_scoped_release release;
  const std::span<double> into(pointer<double>(sum), inputs * outputs);
  const std::span<const double> by(pointer<const double>(weights), records);
  const auto run = [&]<class Real>(Real) {
    add_outer_sum(OuterFactors<Real>{pointer<const Real>(a), pointer<const Real>(g), records,
                                     positions, inputs, outputs},
                  by, team(), first, into);
  };
  wide ? run(double{}) : run(float{});
}

// places: of int64, or 0; rows: of the sum.
void placed_sum(std::uintptr_t sum, std::uintptr_t weights, std::uintptr_t g, std::uintptr_t places,
                std::size_t records, std::size_t positions, std::size_t width, std::size_t rows,
                bool wide) {
  const nb::gil_scoped_release release;
  const std::span<double> into(pointer<double>(sum), rows * width);
  const std::span<const double> by(pointer<const double>(weights), records);
  const auto run = [&]<class Real>(Real) {
    add_placed_sum(PlacedRows<Real>{pointer<const Real>(g), pointer<const std::int64_t>(places),
                                    records, positions, width},
                   by, team(), into);
  };
  wide ? run(double{}) : run(float{});
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

// weights [parts, records] of norms and scales [records, parts]; those of a record with a norm that
// is not finite are 0. Rounded down by more than what a factor loses that is multiplied by them in
// the precision of the model.
void weights_of(const double* norms, const double* scales, double* weights, std::size_t records,
                std::size_t parts, double factor, bool wide) {
  const double down = factor * (wide ? kDown : 1 - 0x1p-22);
  for (std::size_t i = 0; i < records; ++i) {
    bool finite = true;
    for (std::size_t g = 0; g < parts; ++g) finite = finite && std::isfinite(norms[i * parts + g]);
    for (std::size_t g = 0; g < parts; ++g) {
      const double weight = finite ? scales[i * parts + g] * down : 0;
      // What is multiplied by so small a number has few bits left in float32, and could be rounded
      // up by half.
      weights[g * records + i] = weight >= 0x1p-60 ? weight : 0;
    }
  }
}

// The weights of one part, of its squares.
void clipped_weights(std::uintptr_t squares, std::uintptr_t weights, std::size_t records,
                     double bound, double mean_of, double factor, bool wide) {
  std::vector<double> norms(records), scales(records);
  norms_of(pointer<const double>(squares), norms.data(), records, 1, mean_of);
  for (std::size_t i = 0; i < records; ++i)  // as Clip_v1 scales, from below
    scales[i] = std::min(1.0, bound / (norms[i] + kEpsClip) * kDown);
  weights_of(norms.data(), scales.data(), pointer<double>(weights), records, 1, factor, wide);
}

}  // namespace

void discreet::python::add_torch(nb::module_& m) {
  m.def("use_openmp", &use_openmp, "path"_a, "threads"_a,
        "The core works for PyTorch on the threads of this OpenMP library; False if it is not "
        "loaded.");
  m.def("add_outer_squares", &outer_squares, "squares"_a, "a"_a, "g"_a, "records"_a, "positions"_a,
        "inputs"_a, "outputs"_a, "bias"_a, "wide"_a);
  m.def("add_placed_squares", &placed_squares, "squares"_a, "g"_a, "places"_a, "records"_a,
        "positions"_a, "width"_a, "wide"_a);
  m.def("add_row_squares", &row_squares, "squares"_a, "rows"_a, "records"_a, "length"_a, "wide"_a);
  m.def("add_outer_sum", &outer_sum, "sum"_a, "weights"_a, "a"_a, "g"_a, "records"_a, "positions"_a,
        "inputs"_a, "outputs"_a, "first"_a, "wide"_a);
  m.def("add_placed_sum", &placed_sum, "sum"_a, "weights"_a, "g"_a, "places"_a, "records"_a,
        "positions"_a, "width"_a, "rows"_a, "wide"_a);
  m.def(
      "norms_of",
      [](std::uintptr_t squares, std::uintptr_t norms, std::size_t records, std::size_t parts,
         double factor) {
        norms_of(pointer<const double>(squares), pointer<double>(norms), records, parts, factor);
      },
      "squares"_a, "norms"_a, "records"_a, "parts"_a, "factor"_a);
  m.def(
      "weights_of",
      [](std::uintptr_t norms, std::uintptr_t scales, std::uintptr_t weights, std::size_t records,
         std::size_t parts, double factor, bool wide) {
        weights_of(pointer<const double>(norms), pointer<const double>(scales),
                   pointer<double>(weights), records, parts, factor, wide);
      },
      "norms"_a, "scales"_a, "weights"_a, "records"_a, "parts"_a, "factor"_a, "wide"_a);
  m.def("clipped_weights", &clipped_weights, "squares"_a, "weights"_a, "records"_a, "bound"_a,
        "mean_of"_a, "factor"_a, "wide"_a);
}
