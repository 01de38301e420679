#pragma once

#include <nanobind/nanobind.h>

namespace discreet::python {

// One function per room: its bindings, added to discreet._core.
void add_random(nanobind::module_& m);
void add_accounting(nanobind::module_& m);
void add_mechanism(nanobind::module_& m);
void add_mechanism_apply(nanobind::module_& m);
void add_torch(nanobind::module_& m);
void add_ledger(nanobind::module_& m);
void add_run(nanobind::module_& m);
void add_training(nanobind::module_& m);
void add_unlearning(nanobind::module_& m);
void add_unlearning_service(nanobind::module_& m);
void add_release(nanobind::module_& m);

}  // namespace discreet::python
