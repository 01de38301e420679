#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/training_run.h"

namespace discreet::cli {

void add_train(CLI::App& command, int&) {
  auto file = std::make_shared<std::string>();
  command.add_option("CONFIG", *file, "Configuration file; - is standard input")->required();
  auto options = add_training_options(command, "discreet-run");
  command.callback([file, options] {
    const std::string yaml = read_config_file(*file);
    run_training(*options, yaml, *file, std::filesystem::path(*file).parent_path(),
                 fmt::format("discreet train {} --out {}", *file, options->out));
  });
}

}  // namespace discreet::cli
