// Structural isolation: one step from equal state, with and without a payload, is
// the same in every bit outside the payload's profile: weights, momentum and second moments.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "discreet/admission/policy_testing.h"
#include "discreet/admission/resolver.h"
#include "discreet/base/cbor.h"
#include "discreet/config/config_resolve.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/training/optimizer.h"

namespace discreet::training {
namespace {
using mechanism::Microbatch;

constexpr std::size_t kRecords = 12, kWidth = 8, kPayload = 5;

// Five layers of dense weights; attention heads, experts and an adapter beside them.
ModelLayout model() {
  std::vector<Tensor> out;
  for (int i = 0; i < 5; ++i) {
    const std::string layer = fmt::format("stack.{}", i);
    out.push_back({.name = layer + ".query",
                   .shape = {kWidth, kWidth},
                   .layer = layer,
                   .heads = Slices{4, 0}});
    out.push_back({.name = layer + ".output",
                   .shape = {kWidth, kWidth},
                   .layer = layer,
                   .heads = Slices{4, 1}});
    out.push_back({.name = layer + ".experts",
                   .shape = {kWidth, kWidth},
                   .layer = layer,
                   .experts = Slices{2, 0}});
    out.push_back({.name = layer + ".dense", .shape = {kWidth, kWidth}, .layer = layer});
    out.push_back({.name = layer + ".adapter",
                   .shape = {kWidth, kWidth},
                   .layer = layer,
                   .adapter = "notes"});
  }
  return ModelLayout(std::move(out));
}

RoutePlan plan_of(const std::string& profile) {
  const std::string text =
      "corpus: example\naccountant: rdp\nfloors: {clip_norm: 0.01, noise_multiplier: 0.5}\n"
      "most_validity_days: 730\nepoch_seconds: 86400\nretention_epochs: 12\n"
      "noise: {stddev: 2, clipping: flat}\nclasses:\n  clinical:\n    clip_norm: 0.5\n"
      "    noise_multiplier: 1\n    most_occurrences: 20\n    profile: " +
      profile + "\nkeys:\n  - {name: hospital, public_key: " +
      to_hex(admission::testing::key_of(1).public_key().bytes()) + ", classes: [clinical]}\n";
  admission::Descriptor d = admission::testing::clinical();
  d.adapter = "notes";
  return admission::resolve(admission::read_policy(text, "policy.yaml"), d, model()).plan;
}

// The model trained for a few steps on records of two classes: `profile`, and the whole model.
class Trained {
 public:
  Trained(const std::string& profile, OptimizerKind kind, bool ghost)
      : ghost_(ghost), routes_{{plan_of(profile), plan_of("{whole: true}")}, {}} {
    Config config;
    DpConfig& dp = config.privacy;
    dp.secure = false;
    dp.seed = 3;
    dp.declared_size = 1000;
    dp.effective_batch_size = kRecords;
    dp.adjacency = accounting::Adjacency::kZeroOut;
    dp.target_epsilon = 50;
    dp.target_steps = 10;
    dp.clip_ghost = ghost;
    config.privacy = resolve(dp).config;
    config = mechanism::routed_config(config, routes_, model());
    mechanism_.emplace(config, model(),
                       mechanism::mechanism_streams(config.privacy, random::Key::from_seed(1)),
                       Digest{}, 1, 1, std::vector<mechanism::PriorRelease>{}, routes_);
    OptimizerOptions options;
    options.kind = kind;
    options.momentum = kind == OptimizerKind::kSgd ? .9 : 0;
    optimizer_.emplace(options, mechanism_->layout());
    for (std::size_t i = 0; i < model().size(); ++i)
      weights_.emplace_back(model().elements(i), .1f);
  }

  // payload: what multiplies the gradient of record kPayload, of class 0; the others' gradients
  // follow the weights, as gradients do.
  void step(float payload) {
    const ModelLayout layout = model();
    std::mt19937_64 random(17 + mechanism_->t());
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> x(layout.size()), g(layout.size()), rows(layout.size());
    BackwardPass<float> pass{kRecords, {}};
    PerSampleGradients<float> gradients{kRecords, {}};
    float weights = 0;
    for (const auto& w : weights_)
      for (const float v : w) weights += v;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      for (std::size_t k = 0; k < kRecords * kWidth; ++k) {
        const float factor = k / kWidth == kPayload ? payload : 1 + weights;
        x[i].push_back(normal(random));
        g[i].push_back(normal(random) * factor);
      }
      for (std::size_t r = 0; r < kRecords; ++r)
        for (std::size_t o = 0; o < kWidth; ++o)
          for (std::size_t k = 0; k < kWidth; ++k)
            rows[i].push_back(g[i][r * kWidth + o] * x[i][r * kWidth + k]);
      pass.layers.push_back(DensePass<float>{x[i], g[i], 1, i, {}});
      gradients.tensors.emplace_back(rows[i]);
    }
    const Microbatch microbatch = ghost_ ? Microbatch(pass) : Microbatch(gradients);
    std::vector<std::uint32_t> classes(kRecords, 1);
    classes[kPayload] = 0;
    classes[0] = 0;
    const auto result = mechanism_->apply(std::span(&microbatch, 1), std::span(&classes, 1));
    std::vector<std::span<float>> spans(weights_.begin(), weights_.end());
    const std::vector<double> variance(layout.size(), 4. / (kRecords * kRecords));
    optimizer_->step(result.gradients, variance, spans);
  }

  const std::vector<std::vector<float>>& weights() const { return weights_; }
  Bytes optimizer() const { return optimizer_->save(); }
  // Whether class 0 may reach the coordinate.
  bool permits(std::size_t tensor, std::size_t k) const {
    for (const auto& block : routes_.plans[0].blocks)
      for (const auto& t : block.tensors) {
        if (t.tensor != tensor) continue;
        for (const auto& mask : t.masks) {
          const std::size_t at = mask.slices.axis == 0 ? k / kWidth : k % kWidth;
          const std::size_t slice = at / (kWidth / mask.slices.count);
          if (std::count(mask.permitted.begin(), mask.permitted.end(), slice) == 0) return false;
        }
        return true;
      }
    return false;
  }

 private:
  bool ghost_;
  mechanism::Routes routes_;
  std::optional<mechanism::Mechanism> mechanism_;
  std::optional<Optimizer> optimizer_;
  std::vector<std::vector<float>> weights_;
};

// The doubles of the state of an optimizer: of each moment, one per coordinate, in order.
std::vector<std::uint64_t> moment_bits(const Bytes& saved, std::string_view field) {
  const cbor::Value state = cbor::decode(saved);
  const cbor::Value* found = state.find(field);
  EXPECT_NE(found, nullptr) << field;
  std::vector<std::uint64_t> out;
  if (found == nullptr) return out;
  const auto bytes = found->as_bytes();
  out.resize(bytes.size() / 8);
  std::memcpy(out.data(), bytes.data(), out.size() * 8);
  return out;
}

struct Difference {
  std::size_t inside = 0, outside = 0;  // coordinates whose bits differ
};

Difference compare(const Trained& a, const Trained& b, OptimizerKind kind) {
  Difference out;
  std::vector<std::vector<std::uint64_t>> moments;
  for (const char* field : {"first", "second"}) {
    if (kind == OptimizerKind::kSgd && field == std::string("second")) continue;
    moments.push_back(moment_bits(a.optimizer(), field));
    moments.push_back(moment_bits(b.optimizer(), field));
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < a.weights().size(); ++i)
    for (std::size_t k = 0; k < a.weights()[i].size(); ++k, ++at) {
      bool same = std::bit_cast<std::uint32_t>(a.weights()[i][k]) ==
                  std::bit_cast<std::uint32_t>(b.weights()[i][k]);
      for (std::size_t m = 0; m + 1 < moments.size(); m += 2)
        same = same && moments[m].at(at) == moments[m + 1].at(at);
      if (!same) ++(a.permits(i, k) ? out.inside : out.outside);
    }
  return out;
}

class Isolation : public ::testing::TestWithParam<const char*> {};

TEST_P(Isolation, OneStepIsTheSameInEveryBitOutsideTheProfile) {
  for (const bool ghost : {false, true})
    for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
      Trained with(GetParam(), kind, ghost), without(GetParam(), kind, ghost);
      // Equal states in the middle of a run: momentum and second moments exist already.
      for (int t = 0; t < 2; ++t) {
        with.step(1);
        without.step(1);
      }
      with.step(1000);
      without.step(0);
      const Difference d = compare(with, without, kind);
      EXPECT_EQ(d.outside, 0u) << (ghost ? "ghost" : "explicit");
      EXPECT_GT(d.inside, 0u) << "the payload must be somewhere";
    }
}

// What isolation is not: through the weights inside the profile, which are noised releases, every
// later gradient may depend on the payload, also outside. It costs what the event says, no more.
TEST_P(Isolation, OverSeveralStepsItIsPostProcessingAndNotIsolation) {
  Trained with(GetParam(), OptimizerKind::kSgd, false),
      without(GetParam(), OptimizerKind::kSgd, false);
  with.step(1000);
  without.step(0);
  EXPECT_EQ(compare(with, without, OptimizerKind::kSgd).outside, 0u);
  with.step(0);
  without.step(0);
  EXPECT_GT(compare(with, without, OptimizerKind::kSgd).outside, 0u);
}

INSTANTIATE_TEST_SUITE_P(EveryKindOfProfile, Isolation,
                         ::testing::Values("{layers: [1, 2]}", "{depth: [0.6, 1]}",
                                           "{modules: [stack.0, stack.3]}", "{adapter: notes}",
                                           "{layers: [1, 4], heads: [0, 2]}",
                                           "{depth: [0, 0.5], experts: [1]}"));

}  // namespace
}  // namespace discreet::training
