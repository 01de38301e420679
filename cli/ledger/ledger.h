#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/options/command.h"
#include "discreet/ledger/entry.h"
#include "discreet/ledger/store.h"

namespace discreet::cli {

// The subcommands of `discreet ledger`, one file each.
void add_ledger_verify(Command& command);
void add_ledger_show(Command& command);
void add_ledger_prove(Command& command);
void add_ledger_check(Command& command);
void add_ledger_trace(Command& command);
void add_ledger_export(Command& command);
void add_ledger_summarise(Command& command);

// What they share.
void add_ledger_argument(Command& command, std::string& file);
Option& add_ledger_key_option(Command& command, std::string& file);  // --public-key

// Positions and sizes, exactly; throws kInvalidInput.
std::uint64_t parse_position(std::string_view option, const std::string& text);
// A signed note of a checkpoint; throws kInvalidInput if the file holds none.
std::string read_note(const std::string& path);
// In several lines, in ASCII.
std::string indented(const nlohmann::json& value);
// "1 epoch", "2 epochs".
std::string counted(std::uint64_t n, std::string_view what);
std::string epsilon_text(std::uint64_t micro);
// A leaf as JSON, with its position and, of uses, what they refer to.
nlohmann::json described(ledger::Store& store, std::uint64_t position, const ledger::Entry& entry);

}  // namespace discreet::cli
