#pragma once

#include "cli/options/command.h"

namespace discreet::cli {

// `discreet` with every command, in groups.
Command all_commands();

// Each declares the options of a command and what it does; in the file of the same name.
void add_account(Command& command);
void add_admit(Command& command);
void add_attest(Command& command);
void add_check(Command& command);
void add_completion(Command& command);
void add_demo(Command& command);
void add_explain(Command& command);
void add_gate(Command& command);
void add_init(Command& command);
void add_keygen(Command& command);
void add_ledger(Command& command);
void add_manual(Command& command);
void add_operators(Command& command);
void add_plan(Command& command);
void add_policy(Command& command);
void add_predict(Command& command);
void add_release(Command& command);
void add_replay(Command& command);
void add_report(Command& command);
void add_selfcheck(Command& command);
void add_trace(Command& command);
void add_train(Command& command);
void add_unlearn(Command& command);
void add_withdraw(Command& command);

}  // namespace discreet::cli
