#include "cli/options/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "cli/input.h"
#include "discreet/base/text/nearest.h"

namespace discreet::cli {
namespace {

// The nearest of the known words, or the first that continues the one given.
std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  std::optional<std::string> meant = nearest(word, known);
  const auto longer = std::find_if(known.begin(), known.end(), [&](const std::string& each) {
    return word.size() > 2 && each.starts_with(word);
  });
  if (!meant && longer != known.end()) meant = *longer;
  return meant ? fmt::format("; did you mean '{}'?", *meant) : "";
}

std::vector<std::string> names_of(const std::deque<Command>& all) {
  std::vector<std::string> out;
  out.reserve(all.size());
  for (const Command& command : all) out.push_back(command.name());
  return out;
}

std::vector<std::string> names_of(const std::deque<Option>& all) {
  std::vector<std::string> out = {"--help"};
  for (const Option& option : all)
    if (!option.is_argument()) out.push_back(option.name);
  return out;
}

void require_input(const Option& option, const std::string& path) {
  if (option.names == Names::kInput && !(option.is_input_or_dash && path == "-"))
    require_file(path);
  if (option.names == Names::kInputFolder) require_folder(path);
  if (!option.file_inside.empty())
    require_file((std::filesystem::path(path) / option.file_inside).string());
}

class Parser {
 public:
  explicit Parser(const Command& root) : command_(&root) {}

  void take(std::span<const std::string> all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string& word = all[i];
      const bool has_dash = word.size() > 1 && word[0] == '-' && !only_arguments_;
      if (has_dash && word == "--")
        only_arguments_ = true;
      else if (has_dash && word[1] == '-')
        i += take_option(word, i + 1 < all.size() ? &all[i + 1] : nullptr);
      else if (has_dash && std::isalpha(static_cast<unsigned char>(word[1])) != 0)
        unknown_option(word);
      else if (!command_->subcommands().empty())
        take_command(word);
      else
        take_argument(word);
    }
  }

  void finish() const {
    for (const Option& option : command_->options()) {
      if (option.is_required && !values_.contains(&option))
        fail(fmt::format("{} is missing: {}", option.name, option.help));
      for (const std::string& other : option.not_with)
        if (values_.contains(&option) && values_.contains(command_->find(other)))
          fail(fmt::format("{} and {} exclude each other; give one of them", option.name, other));
    }
    // In the order of declaration, after every check of usage.
    for (const Option& option : command_->options()) {
      const auto at = values_.find(&option);
      if (at == values_.end()) continue;
      for (const std::string& value : at->second) {
        require_input(option, value);
        option.take(value);
      }
    }
  }

  const Command& command() const { return *command_; }

 private:
  [[noreturn]] void fail(const std::string& sentence) const {
    throw UsageError(*command_, sentence);
  }
  [[noreturn]] void unknown_option(std::string_view word) const {
    fail(fmt::format("unknown option '{}'{}", word,
                     suggestion(word, names_of(command_->options()))));
  }

  void take_command(const std::string& word) {
    const Command* found = command_->find_subcommand(word);
    if (found == nullptr)
      fail(fmt::format("unknown command '{}'{}", word,
                       suggestion(word, names_of(command_->subcommands()))));
    command_ = found;
  }

  void take_argument(const std::string& word) {
    for (const Option& option : command_->options())
      if (option.is_argument() && (option.is_repeatable || !values_.contains(&option)))
        return store(option, word);
    fail(fmt::format("unexpected argument '{}'", word));
  }

  // How many words beyond the first were taken.
  std::size_t take_option(const std::string& word, const std::string* next) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Option* option = command_->find(name);
    if (option == nullptr) unknown_option(name);
    if (option->is_flag()) {
      if (equals != std::string::npos) fail(fmt::format("{} takes no value", name));
      return store(*option, ""), 0;
    }
    if (equals != std::string::npos) return store(*option, word.substr(equals + 1)), 0;
    if (next == nullptr || command_->find(*next) != nullptr)
      fail(fmt::format("{} needs a value: {} {}", name, name, option->value));
    return store(*option, *next), 1;
  }

  void store(const Option& option, const std::string& value) {
    std::vector<std::string>& values = values_[&option];
    if (!values.empty() && !option.is_repeatable && !option.is_flag())
      fail(fmt::format("{} is given twice; give it once", option.name));
    if (!option.one_of.empty() &&
        std::find(option.one_of.begin(), option.one_of.end(), value) == option.one_of.end())
      fail(fmt::format("{} must be one of {}; found '{}'{}", option.name,
                       fmt::join(option.one_of, ", "), value, suggestion(value, option.one_of)));
    values.push_back(value);
  }

  const Command* command_;
  std::map<const Option*, std::vector<std::string>> values_;
  bool only_arguments_ = false;
};

// The last command that is named, whatever else is given.
const Command& innermost(const Command& root, std::span<const std::string> arguments) {
  const Command* command = &root;
  for (const std::string& word : arguments)
    if (const Command* found = command->find_subcommand(word)) command = found;
  return *command;
}

}  // namespace

Parsed parse(const Command& root, std::span<const std::string> arguments) {
  using Asks = Parsed::Asks;
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const auto given = [&](std::string_view word) {
    return std::find(arguments.begin(), end, word) != end;
  };
  if (given("--help") || given("-h") || (!arguments.empty() && arguments[0] == "help"))
    return {&innermost(root, arguments), Asks::kHelp};
  Parser parser(root);
  parser.take(arguments);
  const Command& command = parser.command();
  if (&command == &root && given("--version")) return {&root, Asks::kVersion};
  if (!command.subcommands().empty()) return {&command, Asks::kWhichCommand};
  parser.finish();
  return {&command, Asks::kAction};
}

}  // namespace discreet::cli
