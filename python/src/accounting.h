#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"

// What the bindings of the accounting room share.
namespace discreet::python {

namespace nb = nanobind;

// "add_remove", "zero_out" or "replace_one"; kInvalidDpConfig for anything else.
accounting::Adjacency adjacency_named(const std::string& text);

// A whole number of any size as 64 bits; kInvalidDpConfig, naming it, if it does not fit.
std::uint64_t count_of(const char* what, const nb::int_& value);

inline nb::bytes to_bytes(const Bytes& bytes) { return nb::bytes(bytes.data(), bytes.size()); }
inline ByteView view(const nb::bytes& bytes) {
  return {static_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

// (lower, upper, path, worse direction)
using Result = std::tuple<double, double, std::string, std::string>;
Result result_of(const accounting::Certified& certified);

void add_events(nb::module_& m);
void add_accountants(nb::module_& m);
void add_filters(nb::module_& m);
void add_amplification(nb::module_& m);

}  // namespace discreet::python
