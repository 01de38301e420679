#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/base/text/printable.h"
#include "discreet/base/version.h"
#include "python/src/rooms.h"

namespace nb = nanobind;

namespace {

// discreet.Error(sentence) with the attributes code, op and sentence.
void raise_as_python(const std::exception_ptr& thrown, void* error_type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const discreet::Error& error) {
    const nb::handle type(static_cast<PyObject*>(error_type));
    // Python prints it as it is, and texts in it may come from a file that a stranger wrote.
    nb::object instance = type(discreet::printable(error.what()));
    instance.attr("code") = std::string(discreet::to_string(error.code()));
    instance.attr("op") = error.op();
    instance.attr("sentence") = discreet::printable(error.sentence());
    PyErr_SetObject(type.ptr(), instance.ptr());
  } catch (const nlohmann::json::exception& error) {
    // The file or text is not what it should be; what is missing is in nlohmann's words.
    PyErr_SetString(PyExc_ValueError, discreet::printable(error.what()).c_str());
  }
}

}  // namespace

NB_MODULE(_core, m) {
  // Objects that live until the interpreter ends, as those of a training loop, are not leaks.
  nb::set_leak_warnings(false);
  m.doc() = "The C++ core of discreet.";
  m.def(
      "version", [] { return std::string(discreet::version()); }, "The version of the library.");

  // The type lives in discreet.errors, so that its attributes are declared and documented there.
  const nb::object error_type = nb::module_::import_("discreet.errors").attr("Error");
  nb::register_exception_translator(raise_as_python, error_type.ptr());

  discreet::python::add_random(m);
  discreet::python::add_accounting(m);
  discreet::python::add_mechanism(m);
  discreet::python::add_mechanism_apply(m);
  discreet::python::add_torch(m);
  discreet::python::add_ledger(m);
  discreet::python::add_run(m);
  discreet::python::add_training(m);
  discreet::python::add_unlearning(m);
  discreet::python::add_unlearning_service(m);
  discreet::python::add_release(m);
}
