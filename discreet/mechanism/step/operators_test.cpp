#include "discreet/mechanism/step/operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "discreet/config/config_resolve.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/mechanism/clip/ghost/fused.h"
#include "discreet/mechanism/clip/ghost/ghost.h"
#include "discreet/mechanism/noise/projection.h"
#include "discreet/mechanism/step/amplification.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::mechanism {
namespace {

// ---------------------------------------------------------------- one small step

ModelLayout model() {
  return ModelLayout({{.name = "a.weight", .shape = {2, 2}, .group = "left"},
                      {.name = "b.weight", .shape = {1, 2}, .group = "right"}});
}

Config config() {
  Config out;
  out.privacy.secure = false;
  out.privacy.declared_size = 100;
  out.privacy.effective_batch_size = 1;
  out.privacy.target_epsilon = 8;
  out.privacy.target_steps = 10;
  out.privacy = resolve(out.privacy).config;
  return out;
}

// One record: gradient (3, 0, 4, 0) of a, of norm 5, and (0, 12) of b; together 13.
struct Record {
  std::vector<double> a = {3, 0, 4, 0}, b = {0, 12};
  std::vector<double> a_in = {1, 0}, a_out = {3, 4}, b_in = {0, 12}, b_out = {1};
  PerSampleGradients<double> rows() const { return {1, {a, b}}; }
  BackwardPass<double> pass() const {
    BackwardPass<double> out{1, {}};
    out.layers.emplace_back(DensePass<double>{a_in, a_out, 1, 0, {}});
    out.layers.emplace_back(DensePass<double>{b_in, b_out, 1, 1, {}});
    return out;
  }
};

// The clipped sum under bound 1 per part, by hand: each part's norm becomes 1.
void expect_each_part_clipped(const GradientSum& sum) {
  EXPECT_NEAR(sum.values()[0], 0.6, 1e-8);
  EXPECT_NEAR(sum.values()[2], 0.8, 1e-8);
  EXPECT_NEAR(sum.values()[5], 1, 1e-8);
}

void clip_by_rows(Cut cut) {
  const Record record;
  GradientSum sum(model());
  const RecordNorms norms =
      clip_per_sample(model(), record.rows(), clip_plan(model(), cut, 1.0), {}, sum);
  EXPECT_NEAR(norms.norm(0, 0), 5, 1e-12);
  expect_each_part_clipped(sum);
}

void expect_update(const char* accountant, double least, double most) {
  const auto spent = accounting::make_accountant(accountant);
  spent->compose(
      {accounting::Gaussian{1}, accounting::Poisson{0.01}, accounting::Adjacency::kAddRemove},
      1000);
  const double epsilon = spent->epsilon(1e-5).epsilon.upper;
  EXPECT_GE(epsilon, least) << accountant;  // what is true: 1.828
  EXPECT_LE(epsilon, most) << accountant;
}

Mechanism mechanism() {
  return Mechanism(config(), model(),
                   mechanism_streams(config().privacy, random::Key::from_seed(1)),
                   kernel_replay_token(config(), Digest{}));
}

Scheduler scheduler() {
  return Scheduler(ScheduleMode::kFixed, {{0, 1.0}}, {8, 1e-5, 10}, StepEvent{[](double sigma) {
                     return accounting::Event{accounting::Gaussian{sigma},
                                              accounting::Poisson{0.01},
                                              accounting::Adjacency::kAddRemove};
                   }});
}

// ---------------------------------------------------------------- a call of each

const std::map<std::string_view, std::function<void()>>& calls() {
  static const std::map<std::string_view, std::function<void()>> kCalls = {
      {"UML_OS.DifferentialPrivacy.PreValidation_v1",
       [] {
         DpConfig bad = config().privacy;
         prevalidate(bad, 0);
         bad.target_delta = 2;
         EXPECT_THROW(prevalidate(bad, 0), Error);
       }},
      {"UML_OS.DifferentialPrivacy.ConfigResolver_v1",
       [] { EXPECT_EQ(resolve(config().privacy).config.sampling_rate, 0.01); }},
      {"UML_OS.DifferentialPrivacy.SensitivityAnalyzer_v1",
       [] {
         DpConfig dp = config().privacy;
         dp.clip_strategy = ClipStrategy::kPerLayer;
         EXPECT_NEAR(analyze_sensitivity(dp, model()).sensitivity[0], 1 / std::sqrt(2.0), 1e-15);
       }},
      {"UML_OS.DifferentialPrivacy.PrivacyBudgetAllocator_v1",
       [] {
         DpConfig dp = config().privacy;
         dp.clip_strategy = ClipStrategy::kPerLayer;
         const Allocation found = allocate_budget(dp, model(), analyze_sensitivity(dp, model()));
         EXPECT_NEAR(found.multiplier[1], std::sqrt(2.0), 1e-12);
       }},
      {"UML_OS.DifferentialPrivacy.Clip_v1",
       [] {
         const Record record;
         GradientSum sum(model());
         clip(model(), record.rows(), {.strategy = ClipStrategy::kPerLayer},
              clip_plan(model(), Cut::kLayer, 1.0), {}, sum);
         expect_each_part_clipped(sum);
       }},
      {"UML_OS.DifferentialPrivacy.ClipPerSample_v1",
       [] {
         const Record record;
         GradientSum sum(model());
         clip_per_sample(model(), record.rows(), clip_plan(model(), Cut::kFlat, 1.0), {}, sum);
         EXPECT_NEAR(sum.values()[5], 12.0 / 13, 1e-8);
       }},
      {"UML_OS.DifferentialPrivacy.GhostClipPerSample_v1",
       [] {
         const Record record;
         GradientSum sum(model());
         ghost_clip(model(), record.pass(), clip_plan(model(), Cut::kFlat, 1.0), {}, sum);
         EXPECT_NEAR(sum.values()[5], 12.0 / 13, 1e-6);
       }},
      {"UML_OS.DifferentialPrivacy.PerLayerClip_v1", [] { clip_by_rows(Cut::kLayer); }},
      {"UML_OS.DifferentialPrivacy.PerGroupClip_v1", [] { clip_by_rows(Cut::kGroup); }},
      {"UML_OS.DifferentialPrivacy.PerTensorClip_v1", [] { clip_by_rows(Cut::kTensor); }},
      {"UML_OS.DifferentialPrivacy.PEFTAwareClipHandler_v1",
       [] {
         const bool mask[] = {false, true};
         const PeftPlan peft = plan_peft(model(), mask, {}, 1.0);
         const Record record;
         GradientSum sum(peft.layout);
         clip_per_sample(peft.layout, record.rows(), peft.plan, {}, sum);
         EXPECT_EQ(sum.values().size(), 2u);
         EXPECT_NEAR(sum.values()[1], 1, 1e-8);
       }},
      {"UML_OS.DifferentialPrivacy.FlashEfficientClip_v1",
       [] {
         const Record record;
         GradientSum sum(model());
         fused_clip(model(), record.pass(), clip_plan(model(), Cut::kLayer, 1.0), {}, sum);
         EXPECT_NEAR(sum.values()[5], 1, 1e-6);
       }},
      {"UML_OS.DifferentialPrivacy.BoundedPrivacyAwareAdaptiveClipNorm_v1",
       [] {
         const std::vector<double> first = {1};
         const AdaptiveClipState state = initial_state(first, {});
         const std::vector<double> noise = {0, 0};
         // A record above the bound: the bound rises.
         const AdaptiveClipState next = adapt_clip_norms(state, {{-0.5}, {-0.5}}, {}, noise);
         EXPECT_GT(clip_norms(next, {})[0], clip_norms(state, {})[0]);
       }},
      {"UML_OS.DifferentialPrivacy.PrivacyBudgetScheduler_v1",
       [] { EXPECT_EQ(scheduler().sigma(3, *accounting::make_accountant("pld")), 1); }},
      {"UML_OS.DifferentialPrivacy.DPScalingLawProjector_v1",
       [] {
         const Projection projection =
             project(*accounting::make_accountant("pld"), scheduler(), 0, 6);
         EXPECT_GT(projection.epsilon, 0);
         EXPECT_EQ(projection.confidence, 1);
       }},
      {"UML_OS.DifferentialPrivacy.AmplificationByShuffling_v1",
       [] {
         DpConfig dp = config().privacy;
         dp.sampling_mode = SamplingMode::kBallsAndBins;
         dp.subsampling = Subsampling::kShuffleWithoutReplacement;
         EXPECT_GT(amplification_factor(plan_sampling(dp), 1, 1e-5), 1);
       }},
      {"UML_OS.DifferentialPrivacy.GenerateNoise_v1",
       [] {
         GradientSum values(model());
         const std::vector<double> stddev = {1};
         NoiseRequest request;
         request.stddev = stddev;
         const Partition flat = partition(model(), Cut::kFlat);
         const NoiseState after = generate_noise(
             model(), flat, request,
             mechanism_streams(config().privacy, random::Key::from_seed(1)).noise, {}, values);
         EXPECT_EQ(after.offset, noise_indices(model(), NoiseFamily::kGaussian, 0));
         for (const double v : values.values()) EXPECT_NE(v, 0);
       }},
      {"UML_OS.DifferentialPrivacy.Accountant.Update_v1",
       [] {
         for (const char* name : {"pld", "moments", "rdp", "f_dp", "gdp"})
           expect_update(name, 1.828, 3);
       }},
      {"UML_OS.DifferentialPrivacy.MomentsAccountant.Update_v1",
       [] { expect_update("moments", 2.0, 3); }},
      {"UML_OS.DifferentialPrivacy.PLDAccountant.Update_v1",
       [] { expect_update("pld", 1.828, 1.829); }},
      {"UML_OS.DifferentialPrivacy.RDPAccountant.Update_v1",
       [] { expect_update("rdp", 1.9, 2.3); }},
      {"UML_OS.DifferentialPrivacy.FDPAccountant.Update_v1",
       [] { expect_update("f_dp", 1.828, 1.9); }},
      {"UML_OS.DifferentialPrivacy.GDPAccountant.Update_v1",
       [] { expect_update("gdp", 1.828, 3); }},
      {"UML_OS.Error.Emit_v1",
       [] {
         Mechanism m = mechanism();
         const FailureRecord record =
             m.emit_error(Error(ErrorCode::kInvalidGradient, "Clip_v1", "a sentence"));
         EXPECT_EQ(record.failure_code, "INVALID_GRADIENT");
         EXPECT_EQ(record.failure_operator, "Clip_v1");
         EXPECT_EQ(record.state_fp, m.fingerprint());
       }},
      {"UML_OS.DifferentialPrivacy.Apply_v3",
       [] {
         Mechanism m = mechanism();
         const Record record;
         const Microbatch one = record.rows();
         const StepResult step = m.apply(std::span(&one, 1));
         EXPECT_EQ(step.gradients.values().size(), 6u);
         EXPECT_GT(step.budget.after.upper, 0);
       }},
  };
  return kCalls;
}

// ---------------------------------------------------------------- the table

TEST(Operators, AreTheTwentyFiveOfTheManifestInItsOrder) {
  ASSERT_EQ(operators().size(), 25u);
  EXPECT_EQ(operators().front().name, "UML_OS.DifferentialPrivacy.PreValidation_v1");
  EXPECT_EQ(operators().back().name, "UML_OS.DifferentialPrivacy.Apply_v3");
  EXPECT_EQ(calls().size(), 25u);
  for (const Operator& op : operators()) {
    EXPECT_TRUE(op.name.starts_with("UML_OS.DifferentialPrivacy.") ||
                op.name == "UML_OS.Error.Emit_v1");
    EXPECT_TRUE(op.purity == "PURE" || op.purity == "STATEFUL") << op.name;
    EXPECT_TRUE(op.signature.starts_with('(') && op.signature.ends_with(')') &&
                op.signature.find("->") != std::string_view::npos)
        << op.name;
    EXPECT_FALSE(op.category.empty()) << op.name;
    EXPECT_TRUE(op.determinism.starts_with("deterministic") ==
                (op.name != "UML_OS.DifferentialPrivacy.GenerateNoise_v1"))
        << op.name;
  }
}

TEST(Operators, NameAFunctionThatTheirHeaderDeclares) {
  for (const Operator& op : operators()) {
    std::ifstream file(std::string(DISCREET_SOURCES) + "/" + std::string(op.module));
    ASSERT_TRUE(file) << op.module;
    std::stringstream header;
    header << file.rdbuf();
    const std::string name(op.function.substr(op.function.rfind(':') + 1));
    EXPECT_NE(header.str().find(" " + name + "("), std::string::npos) << op.name;
    // discreet/ROOM/…; the names of the room config are in discreet itself.
    const std::string path(op.module.substr(op.module.find('/') + 1));
    const std::string room = path.substr(0, path.find('/'));
    const std::string expected = "discreet::" + (room == "config" ? name : room + "::");
    EXPECT_TRUE(op.function.starts_with(expected)) << op.function << " in " << op.module;
  }
}

TEST(Operators, CanEachBeCalledAndDoWhatTheyAreFor) {
  for (const Operator& op : operators()) {
    SCOPED_TRACE(op.name);
    const auto call = calls().find(op.name);
    ASSERT_NE(call, calls().end());
    call->second();
  }
}

}  // namespace
}  // namespace discreet::mechanism
