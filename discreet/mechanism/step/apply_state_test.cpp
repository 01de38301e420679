// Checkpoint and restore.
#include <gtest/gtest.h>

#include <functional>

#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

using namespace small;

void expect_same_future(const Config& config, std::size_t records = 10) {
  Mechanism whole = mechanism(config);
  for (int t = 0; t < 3; ++t) step(whole, records);
  const Bytes saved = whole.save();
  Mechanism restored = mechanism(config);
  restored.restore(saved);
  EXPECT_EQ(restored.save(), saved);
  for (int t = 0; t < 4; ++t) {
    const StepResult a = step(whole, records), b = step(restored, records);
    ASSERT_EQ(values(a), values(b));
    ASSERT_EQ(cbor::encode(trace_iter(a)), cbor::encode(trace_iter(b)));
  }
  EXPECT_EQ(whole.save(), restored.save());
}

TEST(ApplyState, RestoresAndContinuesBitForBit) {
  std::vector<std::function<void(DpConfig&)>> variants = {
      [](DpConfig&) {},
      [](DpConfig& dp) { dp.noise_seed_per_step = true; },
      [](DpConfig& dp) { dp.accountant = AccountantKind::kRdp; },
      [](DpConfig& dp) { dp.clip_strategy = ClipStrategy::kAdaptive; },
      [](DpConfig& dp) { dp.mode = ScheduleMode::kBudgetAdaptive; },
      [](DpConfig& dp) { dp.mode = ScheduleMode::kDynamicProjection; },
      [](DpConfig& dp) { dp.accountant_granularity = Granularity::kPerEpoch; },
      [](DpConfig& dp) {
        dp.compression = Compression::kTopkDp;
        dp.compression_keep = 0.5;
      },
      [](DpConfig& dp) {
        dp.clip_strategy = ClipStrategy::kHybrid;
        dp.privacy_allocation = AllocationMode::kLayerWise;
      }};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    SCOPED_TRACE(i);
    Config config = base();
    variants[i](config.privacy);
    expect_same_future(config);
  }
}

TEST(ApplyState, RestoresInTheMiddleOfAnAccumulation) {
  Config config = base();
  config.privacy.gradient_accumulation_steps = 2;
  Mechanism whole = mechanism(config);
  const Batch first(4, 1), second(6, 2);
  whole.accumulate(first.microbatch());
  Mechanism restored = mechanism(config);
  restored.restore(whole.save());
  whole.accumulate(second.microbatch());
  restored.accumulate(second.microbatch());
  EXPECT_EQ(values(whole.release()), values(restored.release()));
  EXPECT_EQ(whole.save(), restored.save());
}

TEST(ApplyState, HoldsEveryFieldOfTheSpecification) {
  Config config = base();
  config.privacy.clip_strategy = ClipStrategy::kAdaptive;
  Mechanism m = mechanism(config);
  step(m);
  m.accumulate(Batch(3).microbatch());
  const cbor::Value state = cbor::decode(m.save());
  for (const char* key :
       {"cumulative_epsilon", "accountant_state", "rng_dp_state", "clip_norm_state",
        "accumulation_state", "allocation_map_snapshot", "sigma_schedule_cache",
        "sampling_rate_history_hash_chain", "sigma_map_history_hash_chain", "t_micro_counter",
        "per_module_snapshot", "config"}) {
    ASSERT_NE(state.find(key), nullptr) << key;
    EXPECT_FALSE(state.find(key)->is_null()) << key;
  }
}

TEST(ApplyState, RefusesWhatIsForeignCutOrAlteredAndStaysAsItWas) {
  Mechanism m = mechanism(base());
  step(m);
  const Bytes good = m.save();
  Mechanism other = mechanism(base());
  const Bytes before = other.save();
  // Cut short anywhere.
  for (std::size_t n = 0; n < good.size(); n += 37)
    EXPECT_THROW(other.restore(ByteView(good).first(n)), Error);
  // Another configuration, another model.
  Config config = base();
  config.privacy.noise_multiplier = 2;
  Mechanism foreign = mechanism(config);
  try {
    foreign.restore(good);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_NE(error.sentence().find("noise_multiplier"), std::string::npos);
  }
  // An altered bit is rejected, or it is one that the seal of the file guards (a counter, a sum).
  EXPECT_EQ(other.save(), before);
  other.restore(good);
  EXPECT_EQ(other.save(), good);
}

}  // namespace
}  // namespace discreet::mechanism
