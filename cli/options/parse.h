#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "cli/options/command.h"

namespace discreet::cli {

// The command line is not one that the commands take. what(): one line, without the hint to --help.
class UsageError : public std::runtime_error {
 public:
  UsageError(const Command& command, const std::string& sentence)
      : std::runtime_error(sentence), command_(&command) {}
  const Command& command() const { return *command_; }  // the innermost that was named

 private:
  const Command* command_;
};

struct Parsed {
  const Command* command;  // the innermost that was named
  enum class Asks {
    kAction,
    kHelp,
    kVersion,
    kWhichCommand,  // a subcommand must follow
  } asks;
};

// Reads the arguments after the program's name, and hands each value to its option. Options are
// "--name value" or "--name=value", in any order among the arguments; what follows "--" are
// arguments. Throws UsageError, and Error(kInvalidInput) for a file or folder to read that is not
// there.
Parsed parse(const Command& root, std::span<const std::string> arguments);

}  // namespace discreet::cli
