#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "discreet/base/error.h"
#include "discreet/base/version.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of discreet.";
  m.def("version", [] { return std::string(discreet::version()); }, "The version of the library.");
}
