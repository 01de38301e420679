#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/config/config_document.h"

namespace discreet::cli {
namespace {

struct Options {
  std::string file = "discreet.yaml";
  std::string preset;
  bool force = false;
};

void write_starter(const Options& options) {
  const std::string text = config_starter(
      options.preset.empty() ? std::nullopt : std::optional<std::string_view>(options.preset));
  if (options.file == "-") {
    print_lines(text);
    return;
  }
  const std::filesystem::path path = options.file;
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kInvalidInput, "init",
                fmt::format("'{}' is {}; name a file, such as discreet.yaml", options.file,
                            path.empty() ? "no name" : "a directory"));
  }
  if (path.has_parent_path() && !std::filesystem::exists(path.parent_path(), ignored)) {
    throw Error(
        ErrorCode::kIoError, "init",
        fmt::format("'{}' could not be written: there is no directory '{}'; create it first",
                    options.file, path.parent_path().string()));
  }
  if (options.force) {
    write_atomically(path, bytes_of(text));
  } else if (std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::kInvalidInput, "init",
                fmt::format("'{}' exists; name another file, or give --force to overwrite it",
                            options.file));
  } else {
    write_new(path, bytes_of(text));
  }
  print("wrote {}; edit it, then run: discreet check {}\n", options.file, options.file);
}

}  // namespace

void add_init(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("FILE", options->file, "Configuration to write; - is standard output")
      .writes_file();
  command.option("--preset", "NAME", options->preset, "Preset to build on")
      .choices({"llm_flash", "peft_max_utility", "regulated_fair", "frontier_trillion"});
  command.flag("--force", options->force, "Overwrite FILE");
  command.action([options] { write_starter(*options); });
}

}  // namespace discreet::cli
