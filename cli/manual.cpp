#include "cli/options/manual.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "discreet/base/files.h"

namespace discreet::cli {

void add_manual(Command& command) {
  auto folder = std::make_shared<std::string>();
  command.argument("DIR", *folder, "Directory to write to, which must exist")
      .required()
      .reads_folder();
  command.action([folder] {
    const auto write = [&](const Command& each) {
      std::string name = each.path() + ".1";
      std::replace(name.begin(), name.end(), ' ', '-');
      write_atomically(std::filesystem::path(*folder) / name, bytes_of(manual_page(each)));
    };
    const Command root = all_commands();
    write(root);
    for (const Command& each : root.subcommands()) write(each);
  });
}

}  // namespace discreet::cli
