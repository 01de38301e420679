#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "discreet/numerics/sum.h"
#include "rooms.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
using Values = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

template <class T>
double norm_l2(const Values<T>& x, int threads) {
  const nb::gil_scoped_release release;
  return discreet::numerics::norm_l2(std::span<const T>(x.data(), x.size()), threads);
}

}  // namespace

void init_numerics(nb::module_& m) {
  constexpr const char* kDoc =
      "The Euclidean norm of all elements, float64 or float32, by compensated sums: the same bits "
      "for any number of threads.";
  m.def("norm_l2", norm_l2<double>, "x"_a.noconvert(), nb::kw_only(), "threads"_a = 1, kDoc);
  m.def("norm_l2", norm_l2<float>, "x"_a.noconvert(), nb::kw_only(), "threads"_a = 1, kDoc);
}
