#include "cli/options/completion.h"

#include <fmt/format.h>

#include <algorithm>

namespace discreet::cli {
namespace {

bool is_folder(Names names) {
  return names == Names::kInputFolder || names == Names::kOutputFolder;
}

// The command and everything below it.
std::vector<const Command*> walk(const Command& command) {
  std::vector<const Command*> out = {&command};
  for (const Command& each : command.subcommands()) {
    const auto below = walk(each);
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// Between single quotes, as zsh and bash read them.
std::string in_quotes(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }
std::string in_fish_quotes(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// ---------------------------------------------------------------- bash

std::string bash_values(const Option& option) {
  if (!option.one_of.empty()) return fmt::format("-W '{}'", fmt::join(option.one_of, " "));
  if (is_folder(option.names)) return "-d";
  return option.names == Names::kNothing ? "" : "-f";
}

std::string bash_case(const Command& command) {
  std::string words = "--help", values, arguments;
  for (const Command& each : command.subcommands()) arguments += each.name() + " ";
  if (!arguments.empty()) arguments = fmt::format("-W '{}'", arguments);
  for (const Option& option : command.options()) {
    if (!option.is_argument()) words += " " + option.name;
    if (option.is_argument() && arguments.empty()) arguments = bash_values(option);
    if (!option.is_argument() && !option.is_flag())
      values += fmt::format("        {}) _discreet_values {}; return ;;\n", option.name,
                            bash_values(option));
  }
  return fmt::format(
      "    '{}')\n      case $previous in\n{}      esac\n"
      "      if [[ $current == -* ]]; then _discreet_values -W '{}'; else _discreet_values {}; fi "
      ";;\n",
      command.path(), values, words, arguments);
}

// ---------------------------------------------------------------- zsh

std::string zsh_description(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"})
    text = replaced(text, special, std::string("\\") + special);
  return text;
}

std::string zsh_action(const Option& option) {
  if (!option.one_of.empty()) return fmt::format("({})", fmt::join(option.one_of, " "));
  if (is_folder(option.names)) return "_files -/";
  return option.names == Names::kNothing ? " " : "_files";
}

std::string zsh_function_name(const Command& command) {
  return "_" + replaced(command.path(), " ", "_");
}

std::string zsh_function(const Command& command) {
  std::string out = zsh_function_name(command) + "() {\n";
  if (!command.subcommands().empty()) {
    out += "  if (( CURRENT == 2 )); then\n    local -a commands=(\n";
    for (const Command& each : command.subcommands())
      out += fmt::format("      {}\n",
                         in_quotes(each.name() + ":" + replaced(each.summary(), ":", "\\:")));
    out += "    )\n    _describe command commands\n    return\n  fi\n";
    out += "  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $name in\n";
    for (const Command& each : command.subcommands())
      out += fmt::format("    {}) {} ;;\n", each.name(), zsh_function_name(each));
    return out + "  esac\n}\n";
  }
  out += "  _arguments '(-h --help)'{-h,--help}'[Print this help]'";
  for (const Option& option : command.options()) {
    std::string spec;
    if (option.is_argument())
      spec =
          fmt::format("{}:{}:{}", option.is_repeatable ? "*" : "", option.name, zsh_action(option));
    else
      spec = fmt::format("{}{}[{}]", option.is_repeatable ? "*" : "", option.name,
                         zsh_description(option.help));
    if (!option.is_argument() && !option.is_flag())
      spec += fmt::format(":{}:{}", option.value, zsh_action(option));
    out += " \\\n    " + in_quotes(spec);
  }
  return out + "\n}\n";
}

// ---------------------------------------------------------------- fish

std::string fish_lines(const Command& command) {
  const std::string start =
      fmt::format("complete -c discreet -n 'test (__discreet_path) = \"{}\"'", command.path());
  std::string out;
  for (const Command& each : command.subcommands())
    out += fmt::format("{} -f -a {} -d {}\n", start, each.name(), in_fish_quotes(each.summary()));
  out += fmt::format("{} -f -l help -d 'Print this help'\n", start);
  for (const Option& option : command.options()) {
    std::string values;
    if (!option.one_of.empty())
      values = fmt::format(" -x -a '{}'", fmt::join(option.one_of, " "));
    else if (is_folder(option.names))
      values = " -x -a '(__fish_complete_directories)'";
    else if (option.names != Names::kNothing)
      values = " -r -F";
    else if (!option.is_flag())
      values = " -x";
    if (!option.is_argument())
      out += fmt::format("{} -l {}{} -d {}\n", start, option.name.substr(2),
                         option.is_flag() ? " -f" : values, in_fish_quotes(option.help));
    else if (option.names == Names::kInput || option.names == Names::kOutput)
      out += start + " -F\n";
    else if (values.starts_with(" -x -a "))
      out += start + values.substr(3) + "\n";
  }
  return out;
}

}  // namespace

std::string bash_completion(const Command& root) {
  std::string paths, cases;
  for (const Command* command : walk(root)) {
    if (command != &root) paths += fmt::format("{}'{}'", paths.empty() ? "" : "|", command->path());
    cases += bash_case(*command);
  }
  return fmt::format(
      R"(# bash completion of discreet, from its table of commands.
_discreet_values() {{ COMPREPLY=($(compgen "$@" -- "$current")); }}
_discreet() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} path=discreet i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in {}) path="$path ${{COMP_WORDS[i]}}" ;; esac
  done
  COMPREPLY=()
  case $path in
{}  esac
}}
complete -o filenames -F _discreet discreet
)",
      paths, cases);
}

std::string zsh_completion(const Command& root) {
  std::string out =
      "#compdef discreet\n# zsh completion of discreet, from its table of commands.\n";
  for (const Command* command : walk(root)) out += zsh_function(*command);
  return out +
         "if [ \"$funcstack[1]\" = _discreet ]; then _discreet; else compdef _discreet discreet; "
         "fi\n";
}

std::string fish_completion(const Command& root) {
  std::string paths, lines;
  for (const Command* command : walk(root)) {
    if (command != &root) paths += " " + in_fish_quotes(command->path());
    lines += fish_lines(*command);
  }
  return fmt::format(
      R"(# fish completion of discreet, from its table of commands.
set -g __discreet_paths{}
function __discreet_path
  set -l path discreet
  for word in (commandline -opc)[2..-1]
    contains -- "$path $word" $__discreet_paths; and set path "$path $word"
  end
  echo $path
end
complete -c discreet -f
{})",
      paths, lines);
}

}  // namespace discreet::cli
