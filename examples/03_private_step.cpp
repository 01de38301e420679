// A private step in your own training loop: clip, noise, account; read the metrics; save, restore.
#include <cstdio>
#include <string>
#include <vector>

#include "discreet/discreet.h"

using namespace discreet;
using namespace discreet::mechanism;

constexpr const char* kConfig = R"(
security:
  differential_privacy:
    target_epsilon: 1
    declared_size: 1000
    effective_batch_size: 8
    noise_multiplier: 0.8
    clipping: {norm: 0.5}
    secure: false # so that this page repeats; a private run leaves it out and has a secret key
    seed: 7
)";

// The gradients of 8 records in the three weights and the bias of a model.
struct Batch {
  std::vector<float> weight, bias;
  explicit Batch(std::uint64_t step) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      const float slope = (i % 2 == 0 ? -1.0f : 1.0f) / static_cast<float>(step + 2);
      for (const std::uint64_t part : {i % 3, i % 5, i})
        weight.push_back(slope * static_cast<float>(part) / 4);
      bias.push_back(slope);
    }
  }
  Microbatch microbatch() const { return PerSampleGradients<float>{8, {weight, bias}}; }
};

Mechanism make() {
  const Config config = load_config(kConfig, "config").config;
  const ModelLayout layout({{.name = "weight", .shape = {3}}, {.name = "bias"}});
  return {config, layout, mechanism_streams(config.privacy, random::Key::from_system()),
          kernel_replay_token(config, {})};
}

void step(Mechanism& mechanism) {
  const Batch batch(mechanism.t());
  const Microbatch microbatch = batch.microbatch();
  const StepResult result = mechanism.apply({&microbatch, 1});
  const auto weight = result.gradients.tensor(0);
  std::printf("step %d: gradient %.6f %.6f %.6f, bias %.6f\n", static_cast<int>(result.t),
              weight[0], weight[1], weight[2], result.gradients.tensor(1)[0]);
  std::printf("  epsilon <= %.6f of %g; clipped %.3f of the records, norms up to %.6f\n",
              result.budget.after.upper, result.budget.target, result.metrics.clip_fraction,
              result.metrics.norm_max);
}

int main() {
  Mechanism mechanism = make();
  step(mechanism);
  step(mechanism);
  const Bytes saved = mechanism.save();
  step(mechanism);

  Mechanism restored = make();
  restored.restore(saved);
  step(restored);  // the same bits
  std::printf("same state: %s\n", restored.save() == mechanism.save() ? "yes" : "no");

  try {
    while (true) {
      const Batch batch(restored.t());
      const Microbatch microbatch = batch.microbatch();
      restored.apply({&microbatch, 1});
    }
  } catch (const Error& error) {
    std::printf("%s after %d steps\n", std::string(to_string(error.code())).c_str(),
                static_cast<int>(restored.t()));
  }
}
