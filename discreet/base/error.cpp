#include "discreet/base/error.h"

#include <fmt/format.h>

#include "discreet/base/text/printable.h"

namespace discreet {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kPrivacyBudgetExceeded: return "PRIVACY_BUDGET_EXCEEDED";
    case ErrorCode::kInvalidGradient: return "INVALID_GRADIENT";
    case ErrorCode::kNanInSigma: return "NAN_IN_SIGMA";
    case ErrorCode::kAccountantOverflow: return "ACCOUNTANT_OVERFLOW";
    case ErrorCode::kAccountantDivergence: return "ACCOUNTANT_DIVERGENCE";
    case ErrorCode::kRngConsumptionViolation: return "RNG_CONSUMPTION_VIOLATION";
    case ErrorCode::kInvalidDpConfig: return "INVALID_DP_CONFIG";
    case ErrorCode::kInvalidInput: return "INVALID_INPUT";
    case ErrorCode::kMalformed: return "MALFORMED";
    case ErrorCode::kIoError: return "IO_ERROR";
  }
  return "UNKNOWN";
}

Error::Error(ErrorCode code, std::string_view op, std::string_view sentence)
    : std::runtime_error(printable(fmt::format("{}: {}: {}", to_string(code), op, sentence))),
      code_(code),
      op_(printable(op)),
      sentence_(printable(sentence)) {}

void throw_formatted(ErrorCode code, std::string_view op, fmt::string_view format,
                     fmt::format_args args) {
  throw Error(code, op, fmt::vformat(format, args));
}

}  // namespace discreet
