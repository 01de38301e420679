#pragma once

#include <CLI/CLI.hpp>

namespace discreet::cli {

// Exit statuses of every command.
enum ExitStatus : int {
  kDone = 0,           // the work is done, or the check says yes
  kCheckSaysNo = 1,    // verification failed, gate denied, more asked than the budget allows
  kBadInput = 2,       // usage, configuration or input
  kMachineFailed = 3,  // disk, memory, permissions
};

// One row of the command table in main.cpp. `add` declares options on the subcommand and stores the
// action as its callback; the action writes its result to stdout, sets `status` unless it is
// kDone, and throws Error to fail.
struct Command {
  const char* name;
  const char* summary;  // one line, shown by `discreet --help`
  const char* example;  // complete command lines, shown by `discreet NAME --help`
  void (*add)(CLI::App& command, int& status);
};

// One function per command, in the file of the same name.
void add_account(CLI::App& command, int& status);
void add_admit(CLI::App& command, int& status);
void add_attest(CLI::App& command, int& status);
void add_check(CLI::App& command, int& status);
void add_demo(CLI::App& command, int& status);
void add_explain(CLI::App& command, int& status);
void add_gate(CLI::App& command, int& status);
void add_init(CLI::App& command, int& status);
void add_keygen(CLI::App& command, int& status);
void add_ledger(CLI::App& command, int& status);
void add_operators(CLI::App& command, int& status);
void add_plan(CLI::App& command, int& status);
void add_predict(CLI::App& command, int& status);
void add_release(CLI::App& command, int& status);
void add_replay(CLI::App& command, int& status);
void add_report(CLI::App& command, int& status);
void add_selfcheck(CLI::App& command, int& status);
void add_trace(CLI::App& command, int& status);
void add_train(CLI::App& command, int& status);
void add_unlearn(CLI::App& command, int& status);
void add_withdraw(CLI::App& command, int& status);

}  // namespace discreet::cli
