#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "discreet/config/config_resolve.h"
#include "discreet/mechanism/step/apply.h"

// A model of four dense tensors and its gradients, small enough to run hundreds of times: what
// golden traces, equivalence and failures are shown on.
namespace discreet::conformance {

using namespace discreet::mechanism;

inline ModelLayout small_model() {
  return ModelLayout(
      {{.name = "encoder.weight", .shape = {4, 3}, .group = "body"},
       {.name = "encoder.bias", .shape = {4}, .group = "body"},
       {.name = "frozen.weight", .shape = {5}, .trainable = false},
       {.name = "head.weight", .shape = {2, 4}, .group = "top"},
       {.name = "adapter.weight", .shape = {2, 3}, .group = "top", .adapter = "lora"}});
}

inline constexpr std::size_t kRecords = 10;

// Ten Poisson steps of ten records out of a thousand; Philox under a public seed.
inline Config small_config() {
  Config config;
  DpConfig& dp = config.privacy;
  dp.secure = false;
  dp.seed = 20260218;
  dp.declared_size = 1000;
  dp.effective_batch_size = kRecords;
  dp.target_epsilon = 8;
  dp.target_steps = 10;
  config.run.compute_dtype = ComputeDtype::kFloat64;
  return config;
}

inline Mechanism start(Config config, int threads = 1) {
  config.privacy = resolve(config.privacy).config;
  return Mechanism(config, small_model(),
                   mechanism_streams(config.privacy, random::Key::from_seed(0)),
                   kernel_replay_token(config, Digest{}), threads);
}

// The form in which a microbatch is given.
enum class Form : std::uint8_t { kRows, kPasses };

// The records of one step. Inputs and output gradients are multiples of 1/16 below 2, so that
// their products, the per-sample gradients, are exact in binary32: rows and passes are the same
// numbers. They follow from (seed, step) by integer arithmetic alone, the same on every platform.
class SmallBatch {
 public:
  SmallBatch(std::uint64_t seed, std::uint64_t step, std::size_t records = kRecords)
      : records_(records) {
    std::mt19937_64 random(seed * 1000003 + step);
    for (Layer& layer : layers_) {
      const auto draw = [&](std::size_t count, std::vector<float>& out) {
        for (std::size_t k = 0; k < count; ++k)
          out.push_back(static_cast<float>(static_cast<int>(random() % 49) - 24) / 16);
      };
      draw(records * layer.in, layer.input);
      draw(records * layer.out, layer.gradient);
      for (std::size_t r = 0; r < records; ++r)
        for (std::size_t o = 0; o < layer.out; ++o)
          for (std::size_t i = 0; i < layer.in; ++i)
            layer.rows.push_back(layer.gradient[r * layer.out + o] * layer.input[r * layer.in + i]);
    }
  }
  SmallBatch(const SmallBatch&) = delete;
  SmallBatch& operator=(const SmallBatch&) = delete;

  // The records [begin, end); borrows from this.
  Microbatch part(Form form, std::size_t begin, std::size_t end) const {
    const auto cut = [&](const std::vector<float>& values) {
      const std::size_t each = values.size() / records_;
      return std::span<const float>(values).subspan(begin * each, (end - begin) * each);
    };
    const auto& [encoder, head, adapter] = layers_;
    if (form == Form::kRows)
      return PerSampleGradients<float>{
          end - begin,
          {cut(encoder.rows), cut(encoder.gradient), {}, cut(head.rows), cut(adapter.rows)}};
    BackwardPass<float> pass{end - begin, {}};
    pass.layers.emplace_back(DensePass<float>{cut(encoder.input), cut(encoder.gradient), 1, 0, 1});
    pass.layers.emplace_back(DensePass<float>{cut(head.input), cut(head.gradient), 1, 3, {}});
    pass.layers.emplace_back(DensePass<float>{cut(adapter.input), cut(adapter.gradient), 1, 4, {}});
    return pass;
  }
  // A NaN in the first record.
  void spoil() { layers_[0].rows[0] = std::numeric_limits<float>::quiet_NaN(); }

 private:
  struct Layer {
    std::size_t in, out;
    std::vector<float> input = {}, gradient = {}, rows = {};
  };
  std::size_t records_;
  std::array<Layer, 3> layers_ = {{{3, 4}, {4, 2}, {3, 2}}};
};

// One optimizer step, in as many microbatches as the configuration says.
inline StepResult small_step(Mechanism& m, std::uint64_t seed, Form form = Form::kRows) {
  const SmallBatch batch(seed, m.t());
  const std::size_t parts = m.config().privacy.gradient_accumulation_steps;
  std::vector<Microbatch> microbatches;
  for (std::size_t i = 0; i < parts; ++i)
    microbatches.push_back(batch.part(form, i * kRecords / parts, (i + 1) * kRecords / parts));
  return m.apply(microbatches);
}

struct Scenario {
  const char* name;
  std::function<void(DpConfig&)> change;
  Form form = Form::kRows;
  Config config() const {
    Config out = small_config();
    change(out.privacy);
    return out;
  }
};

}  // namespace discreet::conformance
