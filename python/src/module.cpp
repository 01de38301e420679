#include <nanobind/nanobind.h>

#include "discreet/base/version.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of discreet.";
  const std::string_view version = discreet::version();
  m.attr("__version__") = nb::str(version.data(), version.size());
}
