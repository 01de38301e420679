#include "cli/options/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/options/help.h"
#include "discreet/base/version.h"

namespace discreet::cli {

namespace {

constexpr const char* kExitStatuses[] = {
    "the work is done, or the check says yes",
    "the check says no: verification failed, gate denied, budget exceeded",
    "bad usage, configuration or input", "the machine failed: disk, memory, permissions"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::string page_name(const Command& command) {
  std::string name = command.path();
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

// Lines as they are.
std::string verbatim(std::string_view text) {
  std::string out = ".nf\n";
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("  ")) line.remove_prefix(2);
    out += escaped(line) + "\n";
  }
  return out + ".fi\n";
}

std::string options_of(const Command& command) {
  std::string out;
  for (const Option& option : command.options()) {
    out += fmt::format(".TP\n\\fB{}\\fR", escaped(option.name));
    if (!option.is_flag() && !option.is_argument())
      out += fmt::format(" \\fI{}\\fR", escaped(option.value));
    out += "\n" + escaped(help_of(option)) + "\n";
  }
  return out;
}

std::string list_of_commands(const Command& command) {
  std::string out, heading;
  for (const Command& each : command.subcommands()) {
    if (each.heading() != heading) {
      heading = each.heading();
      out += fmt::format(".SS {}\n", heading);
    }
    out +=
        fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", escaped(page_name(each)), escaped(each.summary()));
  }
  return out;
}

std::string section_of(const Command& command) {
  return fmt::format(".SS {}\n{}\n.PP\n{}{}.PP\nExamples:\n.PP\n{}", escaped(command.name()),
                     escaped(command.summary()), verbatim(usage_of(command)), options_of(command),
                     verbatim(command.example()));
}

}  // namespace

std::string manual_page(const Command& command) {
  const std::string name = page_name(command);
  const bool is_root = name == "discreet";
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string summary = command.summary();
  if (is_root) summary = summary.substr(summary.find(' ') + 1);
  if (summary.ends_with('.')) summary.pop_back();
  std::string out = fmt::format(".TH {} 1 \"\" \"discreet {}\" \"discreet\"\n", title, version());
  out += fmt::format(".SH NAME\n{} \\- {}\n", escaped(name), escaped(summary));
  out += ".SH SYNOPSIS\n" + verbatim(usage_of(command));
  if (is_root) {
    out += ".SH COMMANDS\n" + list_of_commands(command);
  } else if (command.subcommands().empty()) {
    out += ".SH OPTIONS\n" + options_of(command);
  } else {
    out += ".SH COMMANDS\n";
    for (const Command& each : command.subcommands()) out += section_of(each);
  }
  out += ".SH EXAMPLES\n" + verbatim(command.example()) + ".SH EXIT STATUS\n";
  for (int status = 0; status < 4; ++status)
    out += fmt::format(".TP\n{}\n{}\n", status, escaped(kExitStatuses[status]));
  if (!is_root) out += ".SH SEE ALSO\n\\fBdiscreet\\fR(1)\n";
  return out;
}

}  // namespace discreet::cli
