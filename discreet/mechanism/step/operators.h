#pragma once

#include <span>
#include <string_view>

namespace discreet::mechanism {

// The sidecar of the specification (0.H): every operator of its manifest (section 4) and the code
// that is it. `discreet operators` prints it; a test finds each function in its header and calls
// it.
struct Operator {
  std::string_view name;         // fully qualified, "UML_OS.DifferentialPrivacy.Clip_v1"
  std::string_view category;     // "Security", "DifferentialPrivacy"
  std::string_view signature;    // of the specification, "(dp_config, t -> ok)"
  std::string_view purity;       // "PURE" or "STATEFUL": of the specification
  std::string_view determinism;  // of the specification
  std::string_view module;       // the header, from the root
  std::string_view function;     // its C++ name, qualified
};

// The 25 operators in the order of the manifest. Category, signature, purity and determinism are
// those that section 5 declares; of UML_OS.Error.Emit_v1, which it imports, those of this library.
// A name that is several overloads stands for all of them.
//
// The specification's accountants are state in, state out. Here an accountant is an object with
// that state: Accountant::compose is the update, Accountant::epsilon the epsilon_t after it, save
// and restore the state; make_accountant chooses by name.
std::span<const Operator> operators() noexcept;

}  // namespace discreet::mechanism
