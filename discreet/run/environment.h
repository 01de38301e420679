#pragma once

#include <string>

#include "discreet/base/cbor.h"

namespace discreet::run {

// What decides the bits of a native run beside configuration, data and key: the build, the library
// of matrix products with the kernels it chose, and the processor's instructions. Steps repeat in
// every bit where these are the same, on any number of threads; where one differs they may not.
//   {version, build: SHA-256 of the file this code is in, blas, cpu}, all text.
cbor::Value environment();

// What differs between two of them, "blas was X and is Y; …"; empty if nothing does.
std::string environment_difference(const cbor::Value& before, const cbor::Value& now);

}  // namespace discreet::run
