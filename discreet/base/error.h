#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace discreet {

// Why an operation ended. The first seven are the failure codes of the specification (S1 0.K);
// their spelling is part of the trace format and never changes.
enum class ErrorCode {
  kPrivacyBudgetExceeded,    // the next step would spend more than the budget; nothing was released
  kInvalidGradient,          // a gradient is not finite or has the wrong shape
  kNanInSigma,               // a noise scale is not finite
  kAccountantOverflow,       // accountant arithmetic left the range of binary64
  kAccountantDivergence,     // two accountant paths disagree beyond their certificates
  kRngConsumptionViolation,  // random numbers consumed differ from those declared
  kInvalidDpConfig,          // a configuration value is invalid or fits no other
  kInvalidInput,             // an argument, file or array is not what the operation takes
  kMalformed,                // bytes that should be canonical are not
  kIoError,                  // the machine failed: disk, memory, permissions
};

// "PRIVACY_BUDGET_EXCEEDED" and so on: the spelling used in messages, traces and records.
std::string_view to_string(ErrorCode code) noexcept;

// The one exception of the library. Throwing it ends the operation; the state of every object
// involved is as it was before the call.
class Error : public std::runtime_error {
 public:
  // op:       the operator or function that failed, as a user would call it ("Sha256",
  // "cbor::decode"). sentence: names the offending value and what to do about it; no trailing
  // newline.
  Error(ErrorCode code, std::string op, std::string sentence);

  ErrorCode code() const noexcept { return code_; }
  const std::string& op() const noexcept { return op_; }
  const std::string& sentence() const noexcept { return sentence_; }
  // what() is "CODE: op: sentence".

 private:
  ErrorCode code_;
  std::string op_;
  std::string sentence_;
};

}  // namespace discreet
