#include "cli/options/completion.h"

#include <memory>

#include "cli/commands.h"
#include "cli/print.h"

namespace discreet::cli {

void add_completion(Command& command) {
  auto shell = std::make_shared<std::string>();
  command.argument("SHELL", *shell, "Shell").required().choices({"bash", "zsh", "fish"});
  command.action([shell] {
    const Command root = all_commands();
    print_lines(*shell == "bash"  ? bash_completion(root)
                : *shell == "zsh" ? zsh_completion(root)
                                  : fish_completion(root));
  });
}

}  // namespace discreet::cli
