#include "discreet/config/config_read.h"

#include <cmath>
#include <set>

#include "discreet/config/config_document.h"
#include "discreet/config/config_preset.h"
#include "discreet/config/config_table.h"
#include "discreet/config/config_testing.h"

namespace discreet {
namespace {

// One line per key: not its default, and what the structure then holds.
struct Setting {
  const char* path;
  const char* value;
};
const Setting kEveryKey[] = {
    {"enabled", "false"},
    {"regulated", "true"},
    {"debug", "true"},
    {"secure", "false"},
    {"seed", "18446744073709551615"},
    {"subsampling", "NONE"},
    {"sampling_mode", "TRUNCATED_POISSON_V1"},
    {"adjacency", "replace_one"},
    {"declared_size", "1000"},
    {"sampling_rate", "0.25"},
    {"effective_batch_size", "7"},
    {"truncated_batch", "9"},
    {"accountant", "rdp"},
    {"accountant_granularity", "PER_EPOCH"},
    {"log_space_accounting", "true"},
    {"target_epsilon", "0.5"},
    {"target_delta", "1.0e-06"},
    {"target_steps", "10"},
    {"safety_budget_reserve", "0.5"},
    {"accounting_adjustment_factor", "1.5"},
    {"accounting_approximation_policy", "\"as declared\""},
    {"verify_accounting", "true"},
    {"ghost_bound_hash", "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""},
    {"clipping.strategy", "hybrid"},
    {"clipping.norm", "0.5"},
    {"clipping.ghost", "true"},
    {"clipping.adaptive.noise", "3.0"},
    {"clipping.adaptive.lower", "0.01"},
    {"clipping.adaptive.upper", "10.0"},
    {"clip_norm_map", "{\"a.b\": 0.5, c: 2.0}"},
    {"sensitivity_map", "{a: 0.5}"},
    {"fused_kernel", "true"},
    {"max_microbatch", "1"},
    {"nonfinite", "zero"},
    {"privacy.adaptive_accounting", "heuristic"},
    {"allow_nonprivate_adaptation", "true"},
    {"public_modules", "[\"a.b\", c]"},
    {"public_groups", "[c]"},
    {"noise.family", "skellam"},
    {"noise_multiplier", "0.0"},
    {"sigma_map", "{a: 0.5}"},
    {"noise.per_layer_multiplier", "{a: 0.5}"},
    {"privacy_allocation", "custom"},
    {"noise.discrete", "0.0009765625"},
    {"noise.compression", "sparse_dp"},
    {"noise.compression_keep", "0.5"},
    {"noise_seed_per_step", "true"},
    {"mode", "step_decay"},
    {"decay.factor", "0.9"},
    {"decay.every", "7"},
    {"projection.policy", "abort"},
    {"training_phase", "cooldown"},
    {"phases.warmup.until_step", "5"},
    {"phases.warmup.steps", "6"},
    {"phases.warmup.noise_multiplier", "2.0"},
    {"phases.warmup.clip_norm", "2.0"},
    {"phases.main.until_step", "7"},
    {"phases.main.steps", "8"},
    {"phases.main.noise_multiplier", "2.0"},
    {"phases.main.clip_norm", "2.0"},
    {"phases.cooldown.steps", "9"},
    {"phases.cooldown.noise_multiplier", "2.0"},
    {"phases.cooldown.clip_norm", "2.0"},
    {"gradient_accumulation_steps", "4"},
    {"accumulation_context.current_step", "3"},
    {"accumulation_context.is_final", "false"},
    {"modules", "{m: {clip_norm: 0.5, sigma_multiplier: 2.0, public: true}}"},
    {"groups", "{g: {public: false}}"},
    {"parallelism.type", "\"3d\""},
    {"parallelism.hierarchical", "true"},
    {"metrics.release", "dp"},
    {"run.compute_dtype", "bfloat16"},
    {"run.epochs", "3"},
    {"run.checkpoint_every", "0"},
    {"data.format", "csv"},
    {"data.train", "a.csv.gz"},
    {"data.train_labels", "b"},
    {"data.test", "c"},
    {"data.test_labels", "d"},
    {"data.holdout", "0.25"},
    {"data.separator", "\"\\t\""},
    {"data.label", "income"},
    {"data.classes", "[0, yes, \"a b\"]"},
    {"data.label_bounds", "[-1.5, 1e6]"},
    {"data.numeric", "{AGE: [0, 120], \"x, y\": [-1.0e-3, 1]}"},
    {"data.categorical", "{sex: [f, m, \"*\"]}"},
    {"data.header", "[a, \"b c\"]"},
    {"data.trim", "true"},
    {"data.map", "{pay: {\"<=50K.\": \"<=50K\", 1: 0}, sex: {}}"},
    {"data.missing", "[\"?\", \"\"]"},
    {"data.hashed", "[town]"},
    {"data.hash_buckets", "16"},
    {"data.on_bad_row", "skip"},
    {"data.private_bounds", "[b, a]"},
    {"data.private_bounds_noise", "20"},
    {"data.class_count", "3"},
    {"data.bounds", "[0, 255]"},
    {"data.image", "[8, 8]"},
    {"model.kind", "mlp"},
    {"model.hidden", "[512, 256]"},
    {"model.activation", "tanh"},
    {"model.groups", "{body: [layer0, layer1]}"},
    {"model.features", "scattering"},
    {"model.scattering_groups", "0"},
    {"model.fourier_count", "10"},
    {"model.fourier_scale", "0.5"},
    {"optimizer.kind", "adam"},
    {"optimizer.rate", "2"},
    {"optimizer.momentum", "0.9"},
    {"optimizer.beta1", "0.5"},
    {"optimizer.beta2", "0.5"},
    {"optimizer.floor", "1e-3"},
    {"optimizer.weight_decay", "0.1"},
    {"optimizer.schedule", "cosine"},
    {"optimizer.average", "0.99"},
    {"corpus.policy", "policy.yaml"},
    {"corpus.descriptors", "anchors.jsonl"},
    {"corpus.uses", "corpus.uses"},
    {"corpus.ledger", "ledger.db"},
    {"corpus.ledger_key", "steward.key"},
    {"corpus.at", "2026-11-16T12:00:00Z"},
    {"corpus.statements", "statements.jsonl"},
    {"corpus.withdrawn", "withdrawn.txt"},
    {"corpus.injection", "per_sample"},
    {"corpus.ledger_epoch_steps", "7"},
};

const Key<Config>& key_at(const std::string& path) {
  for (const Key<Config>& key : config_keys()) {
    if (key.path == path || key.path == std::string(kPrivacySection) + path) return key;
  }
  throw std::out_of_range(path);
}

TEST(ConfigRead, SetsEveryKeyToWhatTheFileSays) {
  std::set<std::string> covered = {"extends", "mechanism", "clipping.adaptive.initial"};
  for (const auto& [path, value] : kEveryKey) {
    const std::string setting = std::string(path) + "=" + value;
    const std::vector<std::string> settings = {setting, "target_epsilon=1"};
    const Config read =
        read_config("security:", "f",
                    std::string(path) == "target_epsilon" ? std::span(settings).first(1) : settings)
            .config;
    const Key<Config>& key = key_at(path);
    EXPECT_NE(key.get(read), key.get(Config{})) << path;
    // What is written reads back; positions are not written.
    const Config again = read_config(write_yaml(read), "again").config;
    if (!key.is_position) {
      EXPECT_EQ(key.get(again), key.get(read)) << path;
    }
    // All else is as by default, but for the defaults that follow.
    for (const Key<Config>& other : config_keys()) {
      const bool follows = !other.default_if.empty() || !other.alias_of.empty() ||
                           other.path.ends_with("target_epsilon") || other.is_position;
      if (other.path == key.path || follows) continue;
      EXPECT_EQ(other.get(read), other.get(Config{})) << path << " changed " << other.path;
    }
    covered.insert(path);
  }
  for (const Key<Config>& key : config_keys()) {
    const bool privacy = key.path.starts_with(kPrivacySection);
    const std::string path = privacy ? key.path.substr(kPrivacySection.size()) : key.path;
    EXPECT_TRUE(covered.contains(path)) << path;
  }
}

TEST(ConfigRead, HasTheDefaultsOfTheSpecification) {
  const DpConfig c = privacy_of("");
  EXPECT_TRUE(c.enabled);
  EXPECT_EQ(c.accountant, AccountantKind::kPld);
  EXPECT_EQ(c.accountant_granularity, Granularity::kPerStep);
  EXPECT_EQ(c.max_microbatch, 256u);
  EXPECT_EQ(c.noise_multiplier, 1.0);
  EXPECT_EQ(c.target_delta, 1e-5);
  EXPECT_FALSE(c.target_steps.has_value());
  EXPECT_EQ(c.gradient_accumulation_steps, 1u);
  EXPECT_EQ(c.safety_budget_reserve, 0.08);
  EXPECT_EQ(c.accounting_adjustment_factor, 1.0);
  EXPECT_FALSE(c.hierarchical);
  EXPECT_FALSE(c.noise_seed_per_step);
  EXPECT_TRUE(c.secure);
}

TEST(ConfigRead, TakesEverySpellingOfEveryChoice) {
  for (const Key<Config>& key : config_keys()) {
    if (key.type != KeyType::kChoice || key.path.ends_with("extends")) continue;
    for (const std::string& choice : key.choices) {
      const std::vector<std::string> settings = {"target_epsilon=1", key.path + "=" + choice};
      EXPECT_EQ(std::get<std::string>(key.get(read_config("run:", "f", settings).config)), choice);
    }
  }
}

TEST(ConfigRead, NamesKeyLineValueAndNearestSpelling) {
  EXPECT_EQ(refusal_of("clipping:\n  strategy: per_smaple"),
            "f:7: security.differential_privacy.clipping.strategy is 'per_smaple'; did you mean "
            "per_sample? it must be one of per_sample, ghost, per_layer, per_group, per_tensor, "
            "hybrid, peft_targeted, adaptive");
  EXPECT_EQ(refusal_of("cliping:\n  norm: 1"),
            "f:6: security.differential_privacy.cliping is an unknown key; did you mean clipping?");
  EXPECT_EQ(refusal_of("target_delta: 1"),
            "f:6: security.differential_privacy.target_delta is 1; it must be in (0, 1)");
  EXPECT_EQ(refusal_of_file("training:\n  file: a.csv\n"),
            "f:1: training is an unknown key; the keys here are security, data, model, optimizer, "
            "run, corpus");
  EXPECT_EQ(refusal_of_file("target_epsilon: 3\n"),
            "f:1: target_epsilon is an unknown key; write it below security.differential_privacy:");
  EXPECT_EQ(refusal_of_file("differential_privacy: {}\n"),
            "f:1: differential_privacy is an unknown key; write it below security:");
  EXPECT_EQ(
      refusal_of("clipping.norm: 2"),
      "f:6: security.differential_privacy.clipping.norm is an unknown key; write it nested, norm "
      "below clipping:");
  EXPECT_EQ(
      refusal_of_file("security:\n  differential_privacy:\n    debug: true\n"),
      "f: security.differential_privacy.target_epsilon is missing; set the budget, for example 3");
  EXPECT_EQ(refusal_of("modules:\n  a: {clip_norm: 1, sigma_multplier: 2}"),
            "f:7: security.differential_privacy.modules.a.sigma_multplier is an unknown key; did "
            "you mean sigma_multiplier?");
  EXPECT_EQ(
      refusal_of("sigma_map:\n  a: 1\n  b: -1"),
      "f:8: security.differential_privacy.sigma_map of b is -1; it must be in [1e-08, 1e+08]");
}

TEST(ConfigRead, NamesTheLineOfABadBoundListOrWord) {
  const auto refused = [](const std::string& sections) {
    return refusal_of_file(file_with("") + sections);
  };
  EXPECT_EQ(refused("data:\n  numeric:\n    age: [0, 120]\n    pay: [5, 5]\n"),
            "f:9: data.numeric of pay is [5, 5]; it must be [lower, upper], two numbers, the "
            "second larger");
  EXPECT_SAYS(refused("data:\n  numeric: {age: [0, 1, 2]}\n"), "f:7: data.numeric of age is [0, 1");
  EXPECT_SAYS(refused("data:\n  numeric: {age: [0, .inf]}\n"), "f:7: data.numeric.age is '.inf'");
  EXPECT_SAYS(refused("data:\n  numeric: {age: [-1e308, 1e308]}\n"), "[lower, upper]");
  EXPECT_SAYS(refused("data:\n  numeric: {age: auto}\n"),
              "f:7: data.numeric.age is 'auto'; expected");
  EXPECT_SAYS(refused("data:\n  numeric: {age: }\n"),
              "data.numeric.age is null; expected [lower, upper]");
  EXPECT_SAYS(refused("data:\n  numeric: {age: auto}\n"), "data.private_bounds");
  EXPECT_SAYS(refused("data:\n  normalize: mean\n"),
              "f:7: data.normalize is an unknown key; using the mean or range of the data would be "
              "an unaccounted release; declare data.numeric");
  EXPECT_SAYS(refused("data:\n  bounds: [1, 0]\n"),
              "f:7: data.bounds is [1, 0]; it must be [lower");
  EXPECT_SAYS(refused("data:\n  categorical:\n    sex: [f, m, f]\n"),
              "f:8: data.categorical of sex contains a word twice; keep one of them");
  EXPECT_SAYS(refused("data:\n  categorical:\n    sex: []\n"),
              "sex is empty; list the possible words");
  EXPECT_SAYS(refused("data:\n  classes: [[a]]\n"), "data.classes is a list");
  EXPECT_SAYS(refused("data: {holdout: 1}\n"), "data.holdout is 1; it must be in [0, 1)");
  EXPECT_SAYS(refused("model:\n  hidden: [512, 0]\n"), "f:7: model.hidden has an entry that is 0");
  EXPECT_SAYS(refused("model:\n  hidden: [512, 1.5]\n"), "model.hidden is '1.5'");
  EXPECT_SAYS(refused("model: {kind: softmx}\n"), "did you mean softmax?");
  EXPECT_SAYS(refused("optimizer: {learning_rate: 1}\n"),
              "optimizer.learning_rate is an unknown key");
  EXPECT_SAYS(refused("optimizer: {rate: 0}\n"), "optimizer.rate is 0; it must be in (0, inf)");
  EXPECT_SAYS(refused("run: {epoch: 1}\n"), "did you mean epochs?");
}

TEST(ConfigRead, EpochsAreTheStepsTheyHave) {
  const auto with = [](const std::string& keys, const std::string& run) {
    return load_config(file_with(keys) + "run: {" + run + "}\n", "f").config;
  };
  const Config by_epochs = with("phases: {cooldown: {steps: 10}}", "epochs: 3");
  const Config by_steps = with("phases: {cooldown: {steps: 10}}\ntarget_steps: 300", "");
  EXPECT_EQ(by_epochs.privacy.target_steps, 300u);
  EXPECT_EQ(config_hash(by_epochs), config_hash(by_steps));
  EXPECT_EQ(with("target_steps: 300", "epochs: 3").privacy.target_steps, 300u);
  EXPECT_EQ(with("effective_batch_size: 7", "epochs: 2").privacy.target_steps, 2 * 8572u);
  EXPECT_EQ(refusal([&] { with("target_steps: 301", "epochs: 3"); }),
            "f:7: run.epochs is 3, which are 300 steps, but "
            "security.differential_privacy.target_steps is 301; keep one of them");
  EXPECT_SAYS(refusal([] {
                load_config(
                    "security: {differential_privacy: {target_epsilon: 1}}\n"
                    "run: {epochs: 3}\n",
                    "f");
              }),
              "f:2: run.epochs is 3, but the number of steps per epoch is unknown");
  EXPECT_EQ(with("mode: meet_exactly_at_target_steps", "epochs: 1").privacy.target_steps, 100u);
}

TEST(ConfigRead, RefusesWhatIsNoNumberOrNotHeldByBinary64) {
  for (const char* bad :
       {".inf",  "-.inf", ".nan",  "nan",    "inf",    "0x10", "0o17",  "010", "1_000", "'1.0'",
        "\"1\"", "one",   "1e400", "-1e400", "1e-400", "1,5",  "1.0.0", "1e",  "e5",    ".",
        "+",     "1 2",   "true",  "[1]",    "{a: 1}", "",     "~",     "1:30"}) {
    EXPECT_SAYS(refusal_of("noise_multiplier: " + std::string(bad)), "noise_multiplier ") << bad;
    EXPECT_SAYS(refusal_of("noise_multiplier: " + std::string(bad)), "f:6: ") << bad;
  }
  for (const char* bad : {"-1", "1.5", "18446744073709551616", "1e30", "0", "ten", "true"}) {
    EXPECT_SAYS(refusal_of("target_steps: " + std::string(bad)), "target_steps is ") << bad;
  }
  for (const char* bad : {"yes", "no", "on", "off", "1", "0", "'true'", "tRUE", "y"}) {
    EXPECT_SAYS(refusal_of("secure: " + std::string(bad)), "it must be true or false") << bad;
  }
}

TEST(ConfigRead, TakesNumbersAsPeopleWriteThem) {
  EXPECT_EQ(privacy_of("target_delta: 1e-5").target_delta, 1e-5);
  EXPECT_EQ(privacy_of("target_delta: 1.E-5").target_delta, 1e-5);
  EXPECT_EQ(privacy_of("noise_multiplier: +2").noise_multiplier, 2);
  EXPECT_EQ(privacy_of("noise_multiplier: .5").noise_multiplier, 0.5);
  EXPECT_EQ(privacy_of("target_steps: 1e6").target_steps, 1000000u);
  EXPECT_EQ(privacy_of("target_steps: 1000.0").target_steps, 1000u);
  EXPECT_EQ(privacy_of("seed: 18446744073709551615").seed, 18446744073709551615u);
  EXPECT_FALSE(std::signbit(privacy_of("safety_budget_reserve: -0.0").safety_budget_reserve));
  EXPECT_EQ(privacy_of("public_modules: null").public_modules.size(), 0u);
  EXPECT_FALSE(privacy_of("sigma_map: null\nclip_norm_map: ~").sigma_map.has_value());
  EXPECT_EQ(privacy_of("parallelism: {type: dp_only}").parallelism, ParallelismType::kDpOnly);
}

TEST(ConfigRead, RefusesYamlThatHidesWhatItSays) {
  EXPECT_SAYS(refusal_of("debug: true\nsecure: true\ndebug: false"),
              "f:8: the key debug is already given on line 6");
  EXPECT_SAYS(refusal_of("clip_norm_map: {a: 1, a: 2}"),
              "f:6: the key a is already given on line 6");
  EXPECT_SAYS(refusal_of("noise_multiplier: &x 2"), "f:6: anchors");
  EXPECT_SAYS(refusal_of_file("a: &a [1]\nb: *a\n"), "f:1: anchors");
  EXPECT_SAYS(refusal_of("<<: {debug: true}"), "f:6: merges");
  EXPECT_SAYS(refusal_of("noise_multiplier: !!float 2"), "f:6: the tag");
  EXPECT_SAYS(refusal_of("? [a, b]\n: 1"), "f:6: a key is not plain text");
  EXPECT_SAYS(refusal_of("~: 1"), "f:6: a key is empty");
  EXPECT_SAYS(refusal_of_file(file_with("") + "---\nrun: {}\n"), "a second document");
  EXPECT_SAYS(refusal_of_file("security:\n\tdifferential_privacy: {}\n"), "f:2: a tab");
  EXPECT_SAYS(refusal_of_file("security: \xff\n"), "f:1: this line is not UTF-8");
  EXPECT_SAYS(refusal_of_file(std::string("security: \0\n", 12)), "f:1: control character 0x00");
  EXPECT_SAYS(refusal_of_file("security: [\n"), "this is not valid YAML");
  EXPECT_SAYS(refusal_of_file(std::string(100000, '[')), "f:1: ");
  EXPECT_SAYS(refusal_of_file(std::string((1 << 20) + 1, ' ')), "at most 1048576");
  EXPECT_SAYS(refusal_of_file(""), "f: the configuration is empty");
  EXPECT_SAYS(refusal_of_file("# nothing\n"), "f: the configuration is empty");
  EXPECT_SAYS(refusal_of_file("- a\n"), "f:1: the configuration is a list");
  EXPECT_SAYS(refusal_of_file("security: 3\n"), "f:1: security is '3'; expected a mapping");
  EXPECT_SAYS(refusal_of("clip_norm_map: {\"\": 1}"), "an empty name");
}

TEST(ConfigRead, MechanismAndNoiseFamilyAreOneKey) {
  EXPECT_EQ(privacy_of("mechanism: gaussian").noise_family, NoiseFamily::kGaussian);
  EXPECT_EQ(privacy_of("mechanism: rounded_gaussian\nnoise: {discrete: 0.125}").noise_family,
            NoiseFamily::kRoundedGaussian);
  EXPECT_EQ(privacy_of("mechanism: gaussian\nnoise: {family: gaussian}").noise_family,
            NoiseFamily::kGaussian);
  EXPECT_SAYS(refusal_of("mechanism: gaussian\nnoise:\n  family: skellam"),
              "f:8: security.differential_privacy.noise.family differs from f:6");
}

TEST(ConfigRead, DefaultsFollowFromWhatIsGiven) {
  EXPECT_EQ(privacy_of("sampling_mode: SEQUENTIAL_V1").subsampling, Subsampling::kNone);
  EXPECT_EQ(privacy_of("sampling_mode: SEQUENTIAL_V1").adjacency, accounting::Adjacency::kZeroOut);
  EXPECT_EQ(privacy_of("subsampling: NONE").sampling_mode, SamplingMode::kSequential);
  EXPECT_EQ(privacy_of("subsampling: SHUFFLE_WITHOUT_REPLACEMENT").sampling_mode,
            SamplingMode::kFixedSize);
  const DpConfig shuffled = privacy_of("sampling_mode: SHUFFLE_WITHOUT_REPLACEMENT_EPOCH_V1");
  EXPECT_EQ(shuffled.accountant_granularity, Granularity::kPerEpoch);
  EXPECT_EQ(shuffled.adjacency, accounting::Adjacency::kZeroOut);
  EXPECT_EQ(privacy_of("regulated: true").nonfinite, NonfinitePolicy::kZero);
  EXPECT_EQ(privacy_of("regulated: true\nnonfinite: abort").nonfinite, NonfinitePolicy::kAbort);
  EXPECT_EQ(privacy_of("").nonfinite, NonfinitePolicy::kAbort);
}

TEST(ConfigRead, SettingsWinOverTheFileAndTheFileOverItsPreset) {
  const std::string file = file_with("extends: peft_max_utility\nclipping: {strategy: per_layer}");
  EXPECT_EQ(load_config(file, "f").config.privacy.noise_multiplier, 0.7);
  EXPECT_EQ(load_config(file, "f").config.privacy.clip_strategy, ClipStrategy::kPerLayer);
  const std::vector<std::string> settings = {
      "noise_multiplier=2", "security.differential_privacy.clipping.strategy=hybrid",
      "run.compute_dtype=float64", "clip_norm_map={a: 1, b: 2}"};
  const Config set = load_config(file, "f", settings).config;
  EXPECT_EQ(set.privacy.noise_multiplier, 2);
  EXPECT_EQ(set.privacy.clip_strategy, ClipStrategy::kHybrid);
  EXPECT_EQ(set.run.compute_dtype, ComputeDtype::kFloat64);
  EXPECT_EQ(set.privacy.clip_norm_map->at("b"), 2);
  const auto refused = [&](const std::string& setting) {
    return refusal([&] { load_config(file, "f", std::vector<std::string>{setting}); });
  };
  EXPECT_EQ(refused("noise_multipler=2"),
            "--set noise_multipler=2: unknown key noise_multipler; did you mean noise_multiplier?");
  EXPECT_SAYS(refused("noise_multiplier"), "expected key=value");
  EXPECT_SAYS(refused("noise_multiplier=x"), "--set noise_multiplier=x: security.");
  EXPECT_SAYS(refused("noise_multiplier=0"), "--set noise_multiplier=0: security.");
}

TEST(ConfigRead, PresetsSetWhatTheSpecificationNames) {
  const DpConfig flash = privacy_of("extends: llm_flash");
  EXPECT_TRUE(flash.fused_kernel && flash.clip_norm_adaptive);
  EXPECT_EQ(flash.clip_strategy, ClipStrategy::kPerLayer);
  EXPECT_EQ(flash.accountant, AccountantKind::kPld);
  EXPECT_EQ(flash.adaptive_accounting, AdaptiveAccounting::kConservative);
  EXPECT_EQ(flash.projection_policy, ProjectionPolicy::kUpscale);
  EXPECT_EQ(flash.parallelism, ParallelismType::kDpOnly);
  EXPECT_EQ(load("extends: llm_flash").notes.front(),
            "parallelism.type fsdp2 resolves to dp_only, the engine of this process");

  const DpConfig peft = privacy_of("extends: peft_max_utility");
  EXPECT_EQ(peft.clip_strategy, ClipStrategy::kPeftTargeted);
  EXPECT_TRUE(peft.clip_ghost);
  EXPECT_EQ(peft.privacy_allocation, AllocationMode::kLayerWise);
  EXPECT_EQ(peft.noise_multiplier, 0.7);

  const DpConfig fair = privacy_of("extends: regulated_fair");
  EXPECT_TRUE(fair.regulated && fair.clip_norm_adaptive);
  EXPECT_EQ(fair.clip_strategy, ClipStrategy::kPerGroup);
  EXPECT_EQ(fair.privacy_allocation, AllocationMode::kUniform);
  EXPECT_EQ(fair.safety_budget_reserve, 0.12);
  EXPECT_EQ(fair.nonfinite, NonfinitePolicy::kZero);

  const DpConfig frontier = privacy_of("extends: frontier_trillion\ntarget_steps: 1000");
  EXPECT_EQ(frontier.clip_strategy, ClipStrategy::kHybrid);
  EXPECT_TRUE(frontier.fused_kernel);
  EXPECT_EQ(frontier.mode, ScheduleMode::kDynamicProjection);
  EXPECT_EQ(load("extends: frontier_trillion\ntarget_steps: 9").notes.front(),
            "parallelism.type 3d resolves to dp_only, the engine of this process");
  EXPECT_SAYS(refusal_of("extends: llm_flsh"), "did you mean llm_flash?");
}

TEST(ConfigDocument, StartersAreAcceptedAsTheyAreAndWhenEveryLineIsUncommented) {
  EXPECT_NO_THROW(load_config(config_starter(), "starter"));
  for (const std::string_view name : preset_names()) {
    EXPECT_NO_THROW(load_config(config_starter(name), "starter")) << name;
    EXPECT_NO_THROW(load_config(config_template(name), "template")) << name;
  }
  std::string all = config_template();
  for (std::size_t at = all.find('#'); at != std::string::npos; at = all.find('#', at + 1)) {
    if (all.at(at + 1) != ' ') all.erase(at, 1);
  }
  const Config every = read_config(all, "every line").config;
  const Config essential = read_config(config_template(), "template").config;
  Config every_resolved = every, essential_resolved = essential;
  every_resolved.privacy = resolve(every.privacy).config;
  essential_resolved.privacy = resolve(essential.privacy).config;
  EXPECT_EQ(config_hash(every_resolved), config_hash(essential_resolved));
}

}  // namespace
}  // namespace discreet
