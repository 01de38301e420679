#include "cli/options/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace discreet::cli {
namespace {

constexpr std::size_t kWidth = 100;      // of a line
constexpr std::size_t kMostColumn = 28;  // where explanations start, at most

// Terms, each with its explanation beside it or, if the term is long, below it.
class Table {
 public:
  void add(std::string term, std::string text) {
    column_ = std::min(kMostColumn, std::max(column_, term.size() + 5));
    rows_.emplace_back(std::move(term), std::move(text));
  }
  bool empty() const { return rows_.empty(); }

  std::vector<std::string> rows() const {
    std::vector<std::string> out;
    for (const auto& [term, text] : rows_) {
      std::string row = "  " + term;
      if (row.size() + 2 > column_)
        row += "\n" + std::string(column_, ' ');
      else
        row.resize(column_, ' ');
      out.push_back(row + wrapped(text));
    }
    return out;
  }

 private:
  std::string wrapped(std::string_view text) const {
    std::string out;
    std::size_t used = column_;
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find(' '));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      if (used > column_ && used + 1 + word.size() > kWidth) {
        out += "\n" + std::string(column_, ' ');
        used = column_;
      } else if (used > column_) {
        out += ' ';
        ++used;
      }
      out += word;
      used += word.size();
    }
    return out + "\n";
  }

  std::vector<std::pair<std::string, std::string>> rows_;
  std::size_t column_ = 0;
};

Table table_of(const Command& command, bool arguments) {
  Table out;
  for (const Option& option : command.options())
    if (option.is_argument() == arguments) out.add(form_of(option), help_of(option));
  return out;
}

std::string commands(const Command& command) {
  Table table;
  for (const Command& each : command.subcommands()) table.add(each.name(), each.summary());
  const std::vector<std::string> rows = table.rows();
  std::string out, heading;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Command& each = command.subcommands()[i];
    if (i == 0 || each.heading() != heading) {
      heading = each.heading();
      out += fmt::format("\n{}:\n", heading.empty() ? "Commands" : heading);
    }
    out += rows[i];
  }
  return out;
}

std::string_view spelling(Names names) {
  switch (names) {
    case Names::kNothing: return "";
    case Names::kInput: return "input_file";
    case Names::kInputFolder: return "input_folder";
    case Names::kOutput: return "output_file";
    case Names::kOutputFolder: return "output_folder";
  }
  return "";
}

nlohmann::json option_json(const Option& option) {
  nlohmann::json out = {{"name", option.name}, {"help", option.help}};
  if (!option.is_flag()) out["value"] = option.value;
  if (!option.by_default.empty()) out["default"] = option.by_default;
  if (!option.one_of.empty()) out["choices"] = option.one_of;
  if (!option.not_with.empty()) out["excludes"] = option.not_with;
  if (option.names != Names::kNothing) out["names"] = spelling(option.names);
  if (option.is_required) out["required"] = true;
  if (option.is_repeatable) out["repeatable"] = true;
  return out;
}

}  // namespace

std::string form_of(const Option& option) {
  if (option.is_argument() || option.is_flag()) return option.name;
  return option.name + " " + option.value;
}

std::string usage_of(const Command& command) {
  std::string out = command.path();
  if (!command.subcommands().empty()) return out + " COMMAND";
  std::string arguments;
  for (const Option& option : command.options()) {
    if (option.is_argument())
      arguments += (option.is_required ? " " + option.name : " [" + option.name + "]") +
                   (option.is_repeatable ? "..." : "");
    else if (option.is_required)
      out += " " + form_of(option);
  }
  return out + " [OPTIONS]" + arguments;
}

std::string help_of(const Option& option) {
  std::string out = option.help;
  if (!option.one_of.empty()) out += fmt::format(" [one of: {}]", fmt::join(option.one_of, ", "));
  if (!option.by_default.empty()) out += fmt::format(" [default: {}]", option.by_default);
  if (option.is_required) out += " [required]";
  if (option.is_repeatable) out += " [repeatable]";
  if (!option.not_with.empty())
    out += fmt::format(" [not with {}]", fmt::join(option.not_with, ", "));
  return out;
}

std::string help_of(const Command& command) {
  std::string out = fmt::format("{}\n\nUsage: {}\n", command.summary(), usage_of(command));
  out += commands(command);
  if (const Table arguments = table_of(command, true); !arguments.empty())
    out += fmt::format("\nArguments:\n{}", fmt::join(arguments.rows(), ""));
  Table options = table_of(command, false);
  options.add("-h, --help", "Print this help");
  out += fmt::format("\nOptions:\n{}", fmt::join(options.rows(), ""));
  if (!command.example().empty()) out += fmt::format("\nExamples:\n  {}\n", command.example());
  return out;
}

nlohmann::json help_json(const Command& command) {
  nlohmann::json out = {
      {"command", command.path()},          {"summary", command.summary()},
      {"usage", usage_of(command)},         {"example", command.example()},
      {"options", nlohmann::json::array()}, {"commands", nlohmann::json::array()}};
  if (!command.heading().empty()) out["group"] = command.heading();
  for (const Option& option : command.options()) out["options"].push_back(option_json(option));
  for (const Command& each : command.subcommands()) out["commands"].push_back(help_json(each));
  return out;
}

}  // namespace discreet::cli
