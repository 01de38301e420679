#include "cli/options/command.h"

#include <algorithm>

namespace discreet::cli {

Option& Option::required() {
  is_required = true;
  return *this;
}

Option& Option::choices(std::vector<std::string> values) {
  one_of = std::move(values);
  return *this;
}

Option& Option::excludes(std::vector<std::string> others) {
  not_with = std::move(others);
  return *this;
}

Option& Option::reads_file() {
  names = Names::kInput;
  return *this;
}

Option& Option::reads_file_or_dash() {
  is_input_or_dash = true;
  return reads_file();
}

Option& Option::reads_folder(std::string file) {
  names = Names::kInputFolder;
  file_inside = std::move(file);
  return *this;
}

Option& Option::writes_file() {
  names = Names::kOutput;
  return *this;
}

Option& Option::writes_folder() {
  names = Names::kOutputFolder;
  return *this;
}

Command::Command(std::string name, std::string summary, std::string example)
    : name_(std::move(name)),
      path_(name_),
      summary_(std::move(summary)),
      example_(std::move(example)) {}

Option& Command::argument(std::string name, std::string& target, std::string help) {
  std::string value = name;
  return option(std::move(name), std::move(value), target, std::move(help));
}

Option& Command::argument(std::string name, std::vector<std::string>& target, std::string help) {
  std::string value = name;
  return option(std::move(name), std::move(value), target, std::move(help));
}

Option& Command::option(std::string name, std::string value, std::string& target,
                        std::string help) {
  Option& out = option(
      std::move(name), std::move(value), [&target](const std::string& text) { target = text; },
      std::move(help));
  out.by_default = target;
  return out;
}

Option& Command::option(std::string name, std::string value, std::vector<std::string>& target,
                        std::string help) {
  Option& out = option(
      std::move(name), std::move(value),
      [&target](const std::string& text) { target.push_back(text); }, std::move(help));
  out.is_repeatable = true;
  return out;
}

Option& Command::option(std::string name, std::string value,
                        std::function<void(const std::string&)> take, std::string help) {
  return options_.emplace_back(Option{.name = std::move(name),
                                      .value = std::move(value),
                                      .help = std::move(help),
                                      .take = std::move(take)});
}

Option& Command::flag(std::string name, bool& target, std::string help) {
  return flag(
      std::move(name), [&target] { target = true; }, std::move(help));
}

Option& Command::flag(std::string name, std::function<void()> take, std::string help) {
  return option(
      std::move(name), "", [take = std::move(take)](const std::string&) { take(); },
      std::move(help));
}

Option& Command::json(bool& target) {
  return flag("--json", target, "Print one JSON object; an error is one too, on standard error");
}

Command& Command::subcommand(std::string name, std::string summary, std::string example) {
  Command& out = subcommands_.emplace_back(std::move(name), std::move(summary), std::move(example));
  out.path_ = path_ + " " + out.name_;
  out.heading_ = next_heading_;
  return out;
}

const Option* Command::find(std::string_view option) const {
  const auto at = std::find_if(options_.begin(), options_.end(),
                               [&](const Option& o) { return o.name == option; });
  return at == options_.end() ? nullptr : &*at;
}

const Command* Command::find_subcommand(std::string_view name) const {
  const auto at = std::find_if(subcommands_.begin(), subcommands_.end(),
                               [&](const Command& c) { return c.name_ == name; });
  return at == subcommands_.end() ? nullptr : &*at;
}

}  // namespace discreet::cli
