#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/base/error.h"

// Arrays of the caller, used where they lie. An array that cannot be used in place is rejected: a
// silent copy would lose what is written to it.
namespace discreet::python {

namespace nb = nanobind;

using Array = nb::ndarray<>;

// A writable array in this process's memory, in C order; anything else throws kInvalidInput.
inline Array in_place(const char* op, nb::handle object) {
  Array array;
  if (!nb::try_cast(object, array, /*convert=*/false)) {
    invalid_input(op, "this is not a writable array; pass a writable NumPy array or CPU tensor");
  }
  if (array.device_type() != nb::device::cpu::value) {
    invalid_input(op, "the array is not in main memory; move it to the CPU");
  }
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.size() > 0 && array.stride(i) != expected) {
      invalid_input(op,
                    "the array is not contiguous in C order; pass one that is (a copy would lose "
                    "what is written)");
    }
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  return array;
}

// What is only read may be read-only; a stride or another dtype is still rejected, not copied.
template <class T>
std::span<const T> readable_of(const char* op, nb::handle object, const char* wanted) {
  nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu> array;
  if (!nb::try_cast(object, array, /*convert=*/false)) {
    invalid_input(op, "expected a contiguous one-dimensional array of {}", wanted);
  }
  return {array.data(), array.size()};
}

template <class T>
bool holds(const Array& array) {
  return array.dtype() == nb::dtype<T>();
}

template <class T>
std::span<T> elements(const Array& array) {
  return {static_cast<T*>(array.data()), array.size()};
}

[[noreturn]] inline void refuse_dtype(const char* op, const char* wanted) {
  invalid_input(op, "the array has the wrong dtype; expected {}", wanted);
}

// Elements of exactly the type T.
template <class T>
std::span<T> in_place_of(const char* op, nb::handle object, const char* wanted) {
  const Array array = in_place(op, object);
  if (!holds<T>(array)) refuse_dtype(op, wanted);
  return elements<T>(array);
}

// Arguments in main memory and C order, used where they lie: bind them with noconvert(), or
// nanobind copies what does not fit. An array that is only read is nb::ro or const. The array keeps
// its memory until the call ends.
template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class A>
void require_shape(const char* op, const A& array, std::initializer_list<std::size_t> expected) {
  std::vector<std::size_t> found;
  for (std::size_t d = 0; d < array.ndim(); ++d) found.push_back(array.shape(d));
  if (found != std::vector<std::size_t>(expected))
    invalid_input(op, "expected an array of shape [{}], found [{}]", fmt::join(expected, ", "),
                  fmt::join(found, ", "));
}

// Calls f with a value of the arrays' precision, which all of them share: float32 or float64.
template <class F, class A, class... As>
auto in_precision(const char* op, F&& f, const A& first, const As&... others) {
  if (((others.dtype() != first.dtype()) || ...)) refuse_dtype(op, "arrays of one precision");
  if (first.dtype() == nb::dtype<double>()) return f(double{});
  if (first.dtype() == nb::dtype<float>()) return f(float{});
  refuse_dtype(op, "float32 or float64");
}

// Gives a vector to Python as a NumPy array, without copying its elements.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

}  // namespace discreet::python
