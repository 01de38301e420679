#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/config_document.h"

namespace discreet::cli {
namespace {

struct Options {
  std::string file = "discreet.yaml";
  std::string preset;
  bool force = false;
};

void run(const Options& options) {
  const std::string text = mechanism::config_starter(
      options.preset.empty() ? std::nullopt : std::optional<std::string_view>(options.preset));
  if (options.file == "-") {
    fmt::print("{}", text);
    return;
  }
  // "x": an existing file is never overwritten by a race either.
  std::FILE* file = std::fopen(options.file.c_str(), options.force ? "wb" : "wbx");
  if (file == nullptr && errno == EEXIST) {
    throw Error(ErrorCode::kInvalidInput, "init",
                fmt::format("'{}' exists; name another file, or give --force to overwrite it",
                            options.file));
  }
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file != nullptr && std::fclose(file) != 0) || !written) {
    throw Error(ErrorCode::kIoError, "init",
                fmt::format("'{}' could not be written: {}", options.file, std::strerror(errno)));
  }
  fmt::print("wrote {}; edit it, then run: discreet check {}\n", options.file, options.file);
}

}  // namespace

void add_init(CLI::App& command, int&) {
  auto options = std::make_shared<Options>();
  command.add_option("FILE", options->file, "Where to write; - is standard output")
      ->capture_default_str();
  command.add_option("--preset", options->preset,
                     "Build on llm_flash, peft_max_utility, regulated_fair or frontier_trillion");
  command.add_flag("--force", options->force, "Overwrite FILE");
  command.callback([options] { run(*options); });
}

}  // namespace discreet::cli
