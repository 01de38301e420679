#include <fmt/core.h>

#include <memory>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/training_run.h"

namespace discreet::cli {

void add_train(Command& command) {
  auto file = std::make_shared<std::string>();
  command.argument("CONFIG", *file, "Configuration file; - is standard input")
      .required()
      .reads_file_or_dash();
  auto options = add_training_options(command, "discreet-run");
  command.action([file, options] {
    const std::string yaml = read_config_file(*file);
    run_training(*options, yaml, *file, std::filesystem::path(*file).parent_path(),
                 fmt::format("discreet train {} --out {}", *file, options->out));
  });
}

}  // namespace discreet::cli
