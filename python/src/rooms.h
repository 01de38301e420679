#pragma once

#include <nanobind/nanobind.h>

// Each room adds its part to the module.
void init_random(nanobind::module_& m);
