#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// The commands and their options as data: one tree, from which arguments are parsed, help is
// printed, and manual pages and shell completion are written.
namespace discreet::cli {

// Exit statuses of every command.
enum ExitStatus : int {
  kDone = 0,           // the work is done, or the check says yes
  kCheckSaysNo = 1,    // verification failed, gate denied, more asked than the budget allows
  kBadInput = 2,       // usage, configuration or input
  kMachineFailed = 3,  // disk, memory, permissions
};

// What a value names: the shell completes it, and what is read must be there.
enum class Names { kNothing, kInput, kInputFolder, kOutput, kOutputFolder };

struct Option {
  std::string name;   // "--delta"; an argument without dashes: "RUN"
  std::string value;  // what stands for its value in help: "FILE"; empty: a flag
  std::string help;   // a phrase without a full stop
  std::function<void(const std::string&)> take;
  std::string by_default = {};             // shown in help
  std::vector<std::string> one_of = {};    // if not empty, the only values
  std::vector<std::string> not_with = {};  // names of options of the same command
  Names names = Names::kNothing;
  std::string file_inside = {};  // of an input folder: must be readable too
  bool is_required = false, is_repeatable = false, is_input_or_dash = false;

  bool is_argument() const { return !name.starts_with("--"); }
  bool is_flag() const { return value.empty(); }

  Option& required();
  Option& choices(std::vector<std::string> values);
  Option& excludes(std::vector<std::string> others);
  // A file or folder that must be there and readable before the command starts.
  Option& reads_file();
  Option& reads_file_or_dash();                 // "-" is standard input
  Option& reads_folder(std::string file = {});  // a folder with this file in it
  Option& writes_file();
  Option& writes_folder();
};

class Command {
 public:
  // summary: one sentence with its full stop. example: complete command lines.
  Command(std::string name, std::string summary, std::string example);

  // Each stores into `target`, which must live as long as the command. What `target` holds now is
  // shown as the default.
  Option& argument(std::string name, std::string& target, std::string help);
  // May be given several times; the last argument of a command.
  Option& argument(std::string name, std::vector<std::string>& target, std::string help);
  Option& option(std::string name, std::string value, std::string& target, std::string help);
  // May be given several times, with one value each.
  Option& option(std::string name, std::string value, std::vector<std::string>& target,
                 std::string help);
  Option& option(std::string name, std::string value, std::function<void(const std::string&)> take,
                 std::string help);
  Option& flag(std::string name, bool& target, std::string help);
  Option& flag(std::string name, std::function<void()> take, std::string help);
  Option& json(bool& target);  // --json

  // What the command does: writes its result to stdout, throws Error to fail. A function without a
  // result is kDone.
  template <class Function>
  void action(Function function) {
    if constexpr (std::is_void_v<std::invoke_result_t<Function>>)
      action_ = [function = std::move(function)] { return function(), kDone; };
    else
      action_ = std::move(function);
  }

  Command& subcommand(std::string name, std::string summary, std::string example);
  // The heading above the subcommands that are added next, in help.
  void group(std::string heading) { next_heading_ = std::move(heading); }

  const std::string& name() const { return name_; }        // "verify"
  const std::string& path() const { return path_; }        // "discreet ledger verify"
  const std::string& heading() const { return heading_; }  // of the group it is in
  const std::string& summary() const { return summary_; }
  const std::string& example() const { return example_; }
  const std::deque<Option>& options() const { return options_; }
  const std::deque<Command>& subcommands() const { return subcommands_; }
  // Null if there is none of that name.
  const Option* find(std::string_view option) const;
  const Command* find_subcommand(std::string_view name) const;
  ExitStatus run() const { return action_(); }

 private:
  std::string name_, path_, heading_, next_heading_, summary_, example_;
  std::deque<Option> options_;  // their addresses stay
  std::deque<Command> subcommands_;
  std::function<ExitStatus()> action_;
};

}  // namespace discreet::cli
