#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "discreet/base/error_testing.h"

namespace discreet {

// As code_of(), in a forked process.
template <class Call>
std::optional<ErrorCode> code_in_fork(const Call& call) {
  constexpr int kNone = 100;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a hang is a failure
    const std::optional<ErrorCode> code = code_of(call);
    ::_exit(code ? static_cast<int>(*code) : kNone);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNone) return std::nullopt;
  return static_cast<ErrorCode>(WEXITSTATUS(status));
}

}  // namespace discreet
