#include "discreet/mechanism/clip/clip_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_rows.h"

namespace discreet::mechanism {
namespace {

ModelLayout tuned_model() {
  return ModelLayout({{.name = "embed.weight", .shape = {50, 8}},
                      {.name = "block.weight", .shape = {8, 8}},
                      {.name = "block.lora.a", .shape = {2, 8}, .adapter = "lora"},
                      {.name = "block.lora.b", .shape = {8, 2}, .adapter = "lora"},
                      {.name = "head.weight", .shape = {4, 8}}});
}

std::string refusal(auto f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    return error.sentence();
  }
  return "accepted";
}

TEST(ClipPlanOfACut, TakesBoundsByNameInTheOrderOfTheParts) {
  const ModelLayout layout = tuned_model();
  const ClipPlan plan =
      clip_plan(layout, Cut::kLayer, {{"block", 2}, {"block.lora", 3}, {"embed", 1}, {"head", 4}});
  EXPECT_EQ(plan.partition.names,
            (std::vector<std::string>{"embed", "block", "block.lora", "head"}));
  EXPECT_EQ(plan.clip, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(clip_plan(layout, Cut::kTensor, 0.5).clip, std::vector<double>(5, 0.5));
}

TEST(ClipPlanOfACut, RefusesAMissingAndAMisspeltName) {
  const ModelLayout layout({{.name = "a.w", .shape = {1}}, {.name = "beta.w", .shape = {1}}});
  EXPECT_EQ(refusal([&] {
              clip_plan(layout, Cut::kLayer, {{"a", 1}});
            }),
            "clip_norm_map has no bound for beta; add one");
  EXPECT_EQ(refusal([&] {
              clip_plan(layout, Cut::kLayer, {{"a", 1}, {"beta", 1}, {"betta", 1}});
            }),
            "clip_norm_map: no private part is named betta; did you mean beta?");
}

TEST(Peft, ClipsAndCountsOnlyWhatIsTrainedPrivately) {
  const ModelLayout layout = tuned_model();
  const bool mask[] = {false, false, true, true, true};
  const std::vector<std::string> modules = {"head"};
  const PeftPlan peft = plan_peft(layout, mask, modules, 1.0);
  EXPECT_EQ(peft.stats.parameters, 400u + 64 + 16 + 16 + 32);
  EXPECT_EQ(peft.stats.trainable_parameters, 64u);
  EXPECT_EQ(peft.stats.private_parameters, 32u);
  EXPECT_EQ(peft.stats.adapter_parameters, 32u);
  EXPECT_DOUBLE_EQ(peft.stats.noise_reduction_factor, std::sqrt(528.0 / 32));

  // Gradients of public or frozen tensors are not read, whatever they contain, and have no memory.
  const std::vector<double> poison(400, std::nan("")), a(16, 3), b(16, 4), head(32, 1e300);
  const PerSampleGradients<double> gradients{1, {poison, std::span(poison).first(64), a, b, head}};
  GradientSum sum(peft.layout);
  const RecordNorms norms = clip_per_sample(peft.layout, gradients, peft.plan, {}, sum);
  EXPECT_NEAR(norms.norm(0, 0), 20, 1e-12);
  EXPECT_EQ(sum.values().size(), 32u);
  EXPECT_TRUE(sum.tensor(4).empty());
  EXPECT_NEAR(sum.tensor(2)[0], 3.0 / 20, 1e-9);
}

TEST(Peft, RefusesAMaskOfAnotherLengthAndAnEmptySelection) {
  const ModelLayout layout = tuned_model();
  const bool none[] = {false, false, false, false, false};
  EXPECT_EQ(refusal([&] { plan_peft(layout, std::span(none).first(2), {}, 1.0); }),
            "trainable_mask has 2 entries; expected one for each of 5 tensors");
  EXPECT_EQ(refusal([&] { plan_peft(layout, none, {}, 1.0); }),
            "none of the 528 parameters is trainable and private, so there is nothing to clip");
  const std::vector<std::string> misspelt = {"haed"};
  EXPECT_EQ(refusal([&] { plan_peft(layout, {}, misspelt, 1.0); }),
            "public_modules: no tensor belongs to haed; did you mean head?");
  EXPECT_EQ(plan_peft(layout, {}, {}, 1.0).stats.noise_reduction_factor, 1);
}

}  // namespace
}  // namespace discreet::mechanism
