#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/demo/governed_demo.h"
#include "cli/training_run.h"

namespace discreet::cli {
namespace {

constexpr const char* kConfig = R"(
data:
  format: digits
model:
  kind: softmax
  features: scattering
optimizer:
  rate: 4
run:
  epochs: 30
security:
  differential_privacy:
    target_epsilon: 8
    target_delta: 1e-5
    declared_size: 1437
    effective_batch_size: 256
    mode: meet_exactly_at_target_steps
    clipping: {norm: 0.5, ghost: true}
)";

}  // namespace

void add_demo(Command& command) {
  auto options = add_training_options(command, "discreet-demo");
  auto governed = std::make_shared<bool>(false);
  command.flag("--governed", *governed,
               "Train on signed contributions: three classes, rejections, a withdrawal, a ledger");
  command.action([options, governed] {
    if (*governed) return run_governed_demo(*options);
    run_training(*options, kConfig, "demo", {},
                 fmt::format("discreet demo --out {}", options->out));
  });
}

}  // namespace discreet::cli
