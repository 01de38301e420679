#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "discreet/base/error.h"

namespace discreet {

// The code of the Error that the call throws; empty if it throws none.
template <class Call>
std::optional<ErrorCode> code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

// The sentence of the Error that the call throws. Expects that it throws one, with this code.
template <class Call>
std::string refusal(const Call& call, ErrorCode code = ErrorCode::kInvalidDpConfig) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.sentence();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

#define EXPECT_SAYS(sentence, part) \
  EXPECT_NE((sentence).find(part), std::string::npos) << (sentence)

}  // namespace discreet
