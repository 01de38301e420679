#include "discreet/config/config_resolve.h"

#include "discreet/base/cbor.h"
#include "discreet/config/config_preset.h"
#include "discreet/config/config_testing.h"

namespace discreet {
namespace {

std::string hash_of(const std::string& keys) { return to_hex(config_hash(load(keys).config)); }
std::string written_out(const std::string& preset) {
  for (const Preset& each : presets()) {
    if (each.name != preset) continue;
    std::string settings;
    for (const PresetKey& key : each.keys) {
      const std::size_t dot = key.path.find('.');
      settings += dot == std::string_view::npos
                      ? std::string(key.path) + ": " + std::string(key.value) + "\n"
                      : "";
    }
    std::map<std::string, std::string> nested;
    for (const PresetKey& key : each.keys) {
      const std::size_t dot = key.path.find('.');
      if (dot == std::string_view::npos) continue;
      nested[std::string(key.path.substr(0, dot))] +=
          "  " + std::string(key.path.substr(dot + 1)) + ": " + std::string(key.value) + "\n";
    }
    for (const auto& [section, keys] : nested) settings.append(section).append(":\n").append(keys);
    return settings;
  }
  return "?";
}

TEST(ConfigResolve, SameMeaningHasTheSameHash) {
  const std::pair<const char*, const char*> pairs[] = {
      {"debug: true\nmax_microbatch: 8", "max_microbatch: 8\ndebug: true"},
      {"noise_multiplier: 1", ""},
      {"noise_multiplier: 2", "noise_multiplier: 2.0"},
      {"noise_multiplier: 2", "noise_multiplier: 20e-1"},
      {"target_steps: 1000", "target_steps: 1e3"},
      {"seed: 0\nsecure: true\nmode: fixed\npublic_modules: null\nsigma_map: null", ""},
      {"public_modules: [b, a, b]", "public_modules: [a, b]"},
      {"modules: {a: {public: true}}", "public_modules: [a]"},
      {"public_modules: [a]\nmodules: {a: {public: false}}", ""},
      {"groups: {g: {public: true}}", "public_groups: [g]"},
      {"clipping: {strategy: per_layer}\nmodules: {a: {clip_norm: 2}}",
       "clipping: {strategy: per_layer}\nclip_norm_map: {a: 2.0}"},
      {"clipping: {strategy: per_layer}\nclip_norm_map: {a: 1}\ngroups: {a: {clip_norm: 2}}",
       "clipping: {strategy: per_layer}\nclip_norm_map: {a: 2}"},
      {"groups: {a: {sigma_multiplier: 2}}", "noise: {per_layer_multiplier: {a: 2}}"},
      {"noise: {per_layer_multiplier: {}}", ""},
      {"mechanism: gaussian", "noise: {family: gaussian}"},
      {"clipping: {strategy: ghost}", "clipping: {strategy: per_sample, ghost: true}"},
      {"clipping: {strategy: adaptive}", "clipping: {norm: adaptive}"},
      {"clipping: {strategy: adaptive, norm: 2}",
       "clipping: {norm: adaptive, adaptive: {initial: 2}}"},
      {"sampling_rate: 0.01", ""},
      {"declared_size: null\nsampling_rate: 0.01", ""},
      {"effective_batch_size: null\nsampling_rate: 0.01", ""},
      {"sampling_mode: POISSON_V1", "subsampling: POISSON"},
      {"phases: {warmup: {steps: 10}}", "phases: {warmup: {until_step: 10}}"},
      {"target_steps: 100\nphases: {warmup: {steps: 10}, cooldown: {steps: 20}}",
       "target_steps: 100\nphases: {warmup: {until_step: 10}, main: {until_step: 80}}"},
      {"phases: {warmup: {steps: 10}, main: {steps: 70}}",
       "phases: {warmup: {until_step: 10}, main: {until_step: 80}}"},
      {"parallelism: {type: fsdp2}", "parallelism: {type: dp_only}"},
      {"gradient_accumulation_steps: 4\naccumulation_context: {current_step: 2, is_final: false}",
       "gradient_accumulation_steps: 4"},
  };
  for (const auto& [a, b] : pairs) EXPECT_EQ(hash_of(a), hash_of(b)) << a << "\n-- and --\n" << b;
  for (const std::string_view preset : preset_names()) {
    const std::string name(preset);
    EXPECT_EQ(hash_of("target_steps: 100\nextends: " + name),
              hash_of("target_steps: 100\n" + written_out(name)))
        << name;
  }
}

TEST(ConfigResolve, EverySettingChangesTheHash) {
  const std::string plain = hash_of("");
  for (const char* other :
       {"noise_multiplier: 1.0000000000000002", "seed: 1", "public_modules: [a]",
        "clipping: {norm: adaptive}", "target_steps: 7", "phases: {warmup: {steps: 10}}",
        "groups: {a: {sigma_multiplier: 2}}", "training_phase: warmup", "secure: false"}) {
    EXPECT_NE(hash_of(other), plain) << other;
  }
}

// The bytes of a recorded configuration never change their meaning: a new key or default is a new
// golden, and a line in the change log.
TEST(ConfigResolve, DefaultConfigurationHasItsGoldenHash) {
  EXPECT_EQ(to_hex(config_hash(Config{})),
            "7fe99928a5628aa51838f52e51bb610f2782d916c8917d5c1df101716e3c0eff");
  EXPECT_EQ(cbor::decode(canonical_bytes(Config{})).as_array().at(0).as_text(),
            "discreet.config.v1");
}

TEST(ConfigResolve, WritesAFileThatReadsBackToTheSameHash) {
  for (const char* keys :
       {"", "extends: llm_flash", "extends: regulated_fair",
        "target_steps: 9\nextends: frontier_trillion",
        R"(clipping: {strategy: per_group}
clip_norm_map: {"a.0: #b": 1, "true": 2, "1": 3, "\"q\\": 4}
modules: {"ü": {public: true}})",
        "target_delta: 1e-300\nnoise_multiplier: 0.1\nseed: 18446744073709551615",
        "accounting_approximation_policy: 'null'", "sampling_mode: SEQUENTIAL_V1",
        R"(sampling_mode: SHUFFLE_WITHOUT_REPLACEMENT_EPOCH_V1
declared_size: 1000
effective_batch_size: 300)",
        "declared_size: null\neffective_batch_size: 7\nsampling_rate: 0.3", "regulated: true",
        "target_steps: 100\nphases: {cooldown: {steps: 20, noise_multiplier: 2}}"}) {
    const LoadedConfig first = load(keys);
    const LoadedConfig again = load_config(write_yaml(first.config), "written");
    EXPECT_EQ(to_hex(config_hash(again.config)), to_hex(config_hash(first.config))) << keys;
    EXPECT_EQ(write_yaml(again.config), write_yaml(first.config));
    EXPECT_EQ(resolve(first.config.privacy).config, first.config.privacy) << keys;
  }
}

TEST(ConfigResolve, FillsInTheThirdOfRateBatchAndSize) {
  EXPECT_EQ(*privacy_of("").sampling_rate, 0.01);
  EXPECT_EQ(*privacy_of("effective_batch_size: null\nsampling_rate: 0.02").effective_batch_size,
            1200u);
  EXPECT_EQ(*privacy_of("declared_size: null\nsampling_rate: 0.02").declared_size, 30000u);
  EXPECT_EQ(
      *privacy_of("effective_batch_size: null\nsampling_mode: SEQUENTIAL_V1").effective_batch_size,
      60000u);
  EXPECT_EQ(*privacy_of("effective_batch_size: null\nsampling_rate: 1e-9").effective_batch_size,
            1u);
  EXPECT_SAYS(refusal_of("sampling_rate: 0.02"),
              "f:6: security.differential_privacy.sampling_rate is 0.02, but effective_batch_size "
              "/ declared_size is 600 / 60000; set two of the three");
  EXPECT_SAYS(refusal_of("effective_batch_size: 60001"), "at most the declared_size of 60000");
}

TEST(ConfigResolve, WithoutADeclaredSizeTheAdjacencyIsZeroOutAndSaysSo) {
  DpConfig config;
  config.sampling_rate = 0.01;
  const Resolved resolved = resolve(config);
  EXPECT_EQ(resolved.config.adjacency, accounting::Adjacency::kZeroOut);
  ASSERT_EQ(resolved.notes.size(), 1u);
  EXPECT_SAYS(resolved.notes[0], "adjacency is zero_out");
  config.declared_size = 1000;
  EXPECT_EQ(resolve(config).config.adjacency, accounting::Adjacency::kAddRemove);
}

TEST(ConfigResolve, PhasesChangeNoiseAndBoundAtTheirSteps) {
  const DpConfig c = privacy_of(
      "target_steps: 100\nnoise_multiplier: 1\nphases:\n  warmup: {steps: 10, noise_multiplier: "
      "2}\n  main: {clip_norm: 0.5}\n  cooldown: {steps: 30, noise_multiplier: 3}");
  const auto noise = [&](std::uint64_t t) { return in_phase(c, phase_at(c, t)).noise_multiplier; };
  EXPECT_EQ(noise(0), 2);
  EXPECT_EQ(noise(9), 2);
  EXPECT_EQ(noise(10), 1);
  EXPECT_EQ(noise(69), 1);
  EXPECT_EQ(noise(70), 3);
  EXPECT_EQ(in_phase(c, TrainingPhase::kMain).clip_norm, 0.5);
  EXPECT_EQ(in_phase(c, TrainingPhase::kWarmup).clip_norm, 1);
  EXPECT_EQ(phase_at(privacy_of("training_phase: warmup"), 1000), TrainingPhase::kWarmup);
  EXPECT_SAYS(refusal_of("phases: {cooldown: {steps: 3}}"), "counts back from target_steps");
  EXPECT_SAYS(refusal_of("phases: {warmup: {steps: 3, until_step: 4}}"), "keep one of them");
  EXPECT_SAYS(refusal_of("phases: {warmup: {steps: 9}, main: {until_step: 4}}"),
              "before its start");
  EXPECT_SAYS(refusal_of("target_steps: 5\nphases: {cooldown: {steps: 6}}"), "but only 5");
  EXPECT_SAYS(refusal_of("target_steps: 9\nphases: {main: {until_step: 4}, cooldown: {steps: 6}}"),
              "but main ends at step 4");
}

TEST(ConfigResolve, ModulesAndGroupsThatContradictEachOtherAreRefused) {
  EXPECT_SAYS(refusal_of("clipping: {strategy: per_layer}\nmodules: {a: {clip_norm: 1}}\n"
                         "groups: {a: {clip_norm: 2}}"),
              "f:8: security.differential_privacy.groups of a differs from modules of a");
}

TEST(ConfigResolve, CarriesTheAccumulationContext) {
  DpConfig config;
  config.gradient_accumulation_steps = 4;
  EXPECT_EQ(resolve(config).accumulation, (AccumulationContext{0, false}));
  EXPECT_EQ(resolve(config, AccumulationContext{3, true}).accumulation,
            (AccumulationContext{3, true}));
  config.accumulation_context = AccumulationContext{1, false};
  EXPECT_EQ(resolve(config).accumulation, (AccumulationContext{1, false}));
  EXPECT_EQ(resolve(DpConfig{}).accumulation, (AccumulationContext{0, true}));
}

TEST(ConfigResolve, SaysWhatHasNoEffect) {
  EXPECT_SAYS(load("fused_kernel: true").notes.at(0), "fused_kernel has no effect");
  EXPECT_TRUE(load("fused_kernel: true\nclipping: {strategy: per_layer}").notes.empty());
  EXPECT_SAYS(load("privacy_allocation: layer_wise").notes.at(0), "only one part");
  EXPECT_SAYS(load("fused_kernel: true\nclipping: {strategy: hybrid}").notes.at(0),
              "fused_kernel has no effect: the strategy hybrid");
  EXPECT_SAYS(load("accounting_adjustment_factor: 2").notes.at(0),
              "accounting_adjustment_factor 2 has no effect");
  EXPECT_TRUE(load("accounting_adjustment_factor: 2\nclipping: {ghost: true}").notes.empty());
  EXPECT_SAYS(load("parallelism: {hierarchical: true}").notes.at(0), "hierarchical has no effect");
  EXPECT_SAYS(load("projection: {policy: abort}").notes.at(0), "without target_steps");
  EXPECT_TRUE(load("projection: {policy: abort}\ntarget_steps: 9").notes.empty());
  DpConfig sharded;
  sharded.parallelism = ParallelismType::kFsdp2;
  EXPECT_EQ(resolve(sharded, {}, ParallelismType::kFsdp2).config.parallelism,
            ParallelismType::kFsdp2);
}

TEST(ConfigResolve, SaysWhichKeysOfAPresetAct) {
  const auto said = [](const std::string& text) { return load(text).notes; };
  const std::vector<std::string> flash = said("extends: llm_flash\ntarget_steps: 9");
  EXPECT_EQ(flash.back(),
            "the preset llm_flash sets clipping.strategy, clipping.norm, "
            "privacy.adaptive_accounting, accountant, fused_kernel, projection.policy");
  EXPECT_SAYS(flash.at(0), "parallelism.type fsdp2 resolves to dp_only");
  const std::vector<std::string> peft = said("extends: peft_max_utility\nnoise_multiplier: 2");
  EXPECT_EQ(peft.back(),
            "the preset peft_max_utility sets clipping.strategy, clipping.ghost, accountant");
  EXPECT_EQ(peft.at(1), "noise_multiplier 2.0 replaces 0.7 of the preset peft_max_utility");
  EXPECT_SAYS(peft.at(0), "privacy_allocation layer_wise has no effect");
  EXPECT_EQ(said("extends: peft_max_utility\nnoise_multiplier: 0.7").back(),
            "the preset peft_max_utility sets clipping.strategy, clipping.ghost, accountant, "
            "noise_multiplier");
}

}  // namespace
}  // namespace discreet
