#pragma once

#include <string>

#include "discreet/base/cbor.h"

namespace discreet::run {

// What determines the bits of a native run besides configuration, data and key: the build, the BLAS
// library with the kernels it selected, and the processor's instructions. If these are equal, steps
// repeat bit for bit on any number of threads; if one differs, they may not.
//   {version, build: SHA-256 of the file that contains this code, blas, cpu}, all text.
cbor::Value environment();

// The differences between two environments, "blas was X and is Y; …"; empty if there are none.
std::string environment_difference(const cbor::Value& before, const cbor::Value& now);

}  // namespace discreet::run
