#pragma once

#include <random>
#include <span>
#include <vector>

#include "discreet/config/config_resolve.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::mechanism {

// A run with target_epsilon 8 that releases the same bits in every test: Philox under a public
// seed.
inline Config public_run(std::uint64_t declared_size, std::uint64_t batch) {
  Config config;
  DpConfig& dp = config.privacy;
  dp.secure = false;
  dp.declared_size = declared_size;
  dp.effective_batch_size = batch;
  dp.target_epsilon = 8;
  config.run.compute_dtype = ComputeDtype::kFloat64;
  return config;
}

inline Config resolved(Config config) {
  config.privacy = resolve(config.privacy).config;
  return config;
}

// routes: as passed to routed_config().
inline Mechanism mechanism_of(const Config& resolved, const ModelLayout& layout, int threads = 1,
                              std::uint64_t key = 1, std::vector<PriorRelease> before = {},
                              std::optional<Routes> routes = {}) {
  return Mechanism(
      resolved, layout, mechanism_streams(resolved.privacy, random::Key::from_seed(key)),
      kernel_replay_token(resolved, Digest{}), threads, 1, std::move(before), std::move(routes));
}

inline StepResult step(Mechanism& m, const Microbatch& microbatch) {
  return m.apply(std::span(&microbatch, 1));
}

inline std::vector<double> values(const StepResult& result) {
  return {result.gradients.values().begin(), result.gradients.values().end()};
}

// A small model with a frozen tensor, a run of it, and gradients.
namespace small {

inline ModelLayout model() {
  return ModelLayout({{.name = "a.weight", .shape = {4, 3}},
                      {.name = "a.bias", .shape = {4}},
                      {.name = "frozen.weight", .shape = {5}, .trainable = false},
                      {.name = "b.weight", .shape = {2, 4}}});
}

inline Config base() {
  Config config = public_run(1000, 10);
  config.privacy.seed = 11;
  config.privacy.target_steps = 100;
  config.privacy.noise_multiplier = 1;
  return config;
}

inline Mechanism mechanism(const Config& config, int threads = 1) {
  return mechanism_of(resolved(config), model(), threads);
}

// Gradients of `records` records that depend on the step only.
struct Batch {
  explicit Batch(std::size_t records, std::uint64_t step = 0, double size = 1) {
    std::mt19937_64 random(step + 1);
    std::normal_distribution<float> normal;
    const ModelLayout layout = model();
    values.resize(layout.size());
    gradients.records = records;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout.tensors()[i].is_private())
        for (std::size_t k = 0; k < records * layout.elements(i); ++k)
          values[i].push_back(static_cast<float>(size) * normal(random));
      gradients.tensors.emplace_back(values[i]);
    }
  }
  Batch(const Batch&) = delete;
  std::vector<std::vector<float>> values;
  PerSampleGradients<float> gradients;
  Microbatch microbatch() const { return gradients; }
};

inline StepResult step(Mechanism& m, std::size_t records = 10, double size = 1) {
  const Batch batch(records, m.t(), size);
  return mechanism::step(m, batch.microbatch());
}

}  // namespace small
}  // namespace discreet::mechanism
