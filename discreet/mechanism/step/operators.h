#pragma once

#include <span>
#include <string_view>

namespace discreet::mechanism {

// The sidecar of the specification (0.H): every operator of its manifest (section 4) with its
// implementation. `discreet operators` prints it; a test finds each function in its header and
// calls it.
struct Operator {
  std::string_view name;         // fully qualified, "UML_OS.DifferentialPrivacy.Clip_v1"
  std::string_view category;     // "Security", "DifferentialPrivacy"
  std::string_view signature;    // of the specification, "(dp_config, t -> ok)"
  std::string_view purity;       // "PURE" or "STATEFUL", from the specification
  std::string_view determinism;  // from the specification
  std::string_view definition;   // what it does, in one sentence
  std::string_view module;       // the header, relative to the root
  std::string_view function;     // its C++ name, qualified
};

// The 25 operators in the order of the manifest. Category, signature, purity and determinism are
// those of section 5; for UML_OS.Error.Emit_v1, which the specification imports, those of this
// library. The definition sums up the header. An overloaded name stands for all overloads.
//
// The accountants of the specification take and return state. Here an accountant is an object with
// that state: Accountant::compose is the update, Accountant::epsilon the epsilon_t after it, save
// and restore read and write the state, and make_accountant selects one by name.
std::span<const Operator> operators() noexcept;

}  // namespace discreet::mechanism
