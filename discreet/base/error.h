#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace discreet {

// Why an operation failed. The first seven are the failure codes of the specification (S1 0.K);
// their spelling is part of the trace format and never changes.
enum class ErrorCode {
  kPrivacyBudgetExceeded,    // the next step would spend more than the budget; nothing was released
  kInvalidGradient,          // a gradient is not finite or has the wrong shape
  kNanInSigma,               // a noise scale is not finite
  kAccountantOverflow,       // accountant arithmetic left the range of binary64
  kAccountantDivergence,     // two accountant paths disagree beyond their certificates
  kRngConsumptionViolation,  // random numbers consumed differ from the declared number
  kInvalidDpConfig,          // a configuration value is invalid or conflicts with another
  kInvalidInput,             // an argument, file or array does not meet the requirements
  kMalformed,                // bytes that must be canonical are not
  kIoError,                  // the machine failed: disk, memory, permissions
};

// The spelling used in messages, traces and records, such as "PRIVACY_BUDGET_EXCEEDED".
std::string_view to_string(ErrorCode code) noexcept;

// The only exception type of the library. When it is thrown, the operation has failed and every
// object involved has the state it had before the call.
class Error : public std::runtime_error {
 public:
  // op: the operator or function that failed, as a user would call it ("Sha256", "cbor::decode").
  // sentence: what was expected, what was found and what to do; no trailing newline.
  // Both are kept as printable() writes them: one line that cannot control a terminal, whatever
  // they quote.
  Error(ErrorCode code, std::string_view op, std::string_view sentence);

  ErrorCode code() const noexcept { return code_; }
  const std::string& op() const noexcept { return op_; }
  const std::string& sentence() const noexcept { return sentence_; }
  // what() is "CODE: op: sentence".

 private:
  ErrorCode code_;
  std::string op_;
  std::string sentence_;
};

// Throw an Error whose sentence is the formatted text. The compiler checks the format against its
// arguments; <fmt/core.h> is the light half of the library, and the formatting is in error.cpp.
[[noreturn]] void throw_formatted(ErrorCode code, std::string_view op, fmt::string_view format,
                                  fmt::format_args args);

template <class... Args>
[[noreturn]] void fail(ErrorCode code, std::string_view op, fmt::format_string<Args...> format,
                       Args&&... args) {
  throw_formatted(code, op, format, fmt::make_format_args(args...));
}
template <class... Args>
[[noreturn]] void budget_exceeded(std::string_view op, fmt::format_string<Args...> format,
                                  Args&&... args) {
  throw_formatted(ErrorCode::kPrivacyBudgetExceeded, op, format, fmt::make_format_args(args...));
}
template <class... Args>
[[noreturn]] void invalid_gradient(std::string_view op, fmt::format_string<Args...> format,
                                   Args&&... args) {
  throw_formatted(ErrorCode::kInvalidGradient, op, format, fmt::make_format_args(args...));
}
template <class... Args>
[[noreturn]] void invalid_config(std::string_view op, fmt::format_string<Args...> format,
                                 Args&&... args) {
  throw_formatted(ErrorCode::kInvalidDpConfig, op, format, fmt::make_format_args(args...));
}
template <class... Args>
[[noreturn]] void invalid_input(std::string_view op, fmt::format_string<Args...> format,
                                Args&&... args) {
  throw_formatted(ErrorCode::kInvalidInput, op, format, fmt::make_format_args(args...));
}
template <class... Args>
[[noreturn]] void malformed(std::string_view op, fmt::format_string<Args...> format,
                            Args&&... args) {
  throw_formatted(ErrorCode::kMalformed, op, format, fmt::make_format_args(args...));
}
template <class... Args>
[[noreturn]] void io_error(std::string_view op, fmt::format_string<Args...> format,
                           Args&&... args) {
  throw_formatted(ErrorCode::kIoError, op, format, fmt::make_format_args(args...));
}

}  // namespace discreet
