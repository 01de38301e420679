// Private training as a library: a configuration in, a run directory and its claim out.
#include <cstdio>
#include <filesystem>
#include <string>

#include "discreet/discreet.h"

using namespace discreet;

constexpr const char* kConfig = R"(
data: {format: digits} # the handwritten digits that come with the library
model: {kind: softmax}
optimizer: {rate: 4}
security:
  differential_privacy:
    target_epsilon: 4
    target_steps: 40
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1.5
    clipping: {norm: 1, ghost: true}
)";

int main() {
  const Config config = training::load_training_config(kConfig, "config", {}, {}).config;
  training::TrainOptions options;
  options.directory = std::filesystem::temp_directory_path() / "discreet-example-04-cpp";
  std::filesystem::remove_all(options.directory);
  options.threads = 2;
  const training::RunResult run = training::train(config, options);
  std::printf("%s after %d steps\n", std::string(to_string(run.ended)).c_str(),
              static_cast<int>(run.steps));
  std::printf("epsilon <= %.4f at delta %g, %s\n", run.epsilon->upper, run.delta,
              std::string(accounting::to_string(run.adjacency)).c_str());
  std::printf("more than 7 of 10 held-out digits are right: %s\n",
              *run.accuracy > 0.7 ? "yes" : "no");

  const training::TrainedModel model = training::load_model(run.directory);
  for (const Tensor& tensor : model.network.layout().tensors()) {
    std::printf("%s:", tensor.name.c_str());
    for (const std::uint64_t n : tensor.shape) std::printf(" %d", static_cast<int>(n));
    std::printf("\n");
  }
  std::filesystem::remove_all(options.directory);
}
