#include "discreet/config/config_table.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "discreet/config/config_preset.h"

namespace discreet {
namespace {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
KeyValue to_value(const T& member) {
  if constexpr (IsOptional<T>::value) {
    return member ? to_value(*member) : KeyValue{};
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(spelling(member));
  } else {
    return member;
  }
}

template <class T>
void from_value(T& member, const KeyValue& value) {
  if constexpr (IsOptional<T>::value) {
    if (std::holds_alternative<std::monostate>(value)) {
      member.reset();
    } else {
      from_value(member.emplace(), value);
    }
  } else if constexpr (std::is_enum_v<T>) {
    const auto words = spellings(T{});
    const auto& word = std::get<std::string>(value);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == word) member = static_cast<T>(i);
    }
  } else if (std::holds_alternative<std::monostate>(value)) {
    member = T{};  // a list or map that is null is empty
  } else {
    member = std::get<T>(value);
  }
}

template <class T>
void describe_type(KeyType& type, std::vector<std::string>& choices) {
  if constexpr (std::is_enum_v<T>) {
    type = KeyType::kChoice;
    for (const std::string_view word : spellings(T{})) choices.emplace_back(word);
  } else if constexpr (std::is_same_v<T, bool>) {
    type = KeyType::kBool;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    type = KeyType::kInteger;
  } else if constexpr (std::is_same_v<T, double>) {
    type = KeyType::kNumber;
  } else if constexpr (std::is_same_v<T, std::string>) {
    type = KeyType::kText;
  } else if constexpr (std::is_same_v<T, std::vector<std::uint64_t>>) {
    type = KeyType::kIntegerList;
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    type = KeyType::kBounds;
  } else if constexpr (std::is_same_v<T, NumberMap>) {
    type = KeyType::kNumberMap;
  } else if constexpr (std::is_same_v<T, BoundsMap>) {
    type = KeyType::kBoundsMap;
  } else if constexpr (std::is_same_v<T, WordsMap>) {
    type = KeyType::kWordsMap;
  } else if constexpr (std::is_same_v<T, SpellingsMap>) {
    type = KeyType::kSpellingsMap;
  } else if constexpr (std::is_same_v<T, OverrideMap>) {
    type = KeyType::kOverrideMap;
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>);
    type = KeyType::kTextList;
  }
}

// A key held by one member; the member's type decides what the key takes.
template <class Target, class Access>
Key<Target> row(const std::string& path, Access at, const std::string& description,
                Range range = {}) {
  using Member = std::remove_cvref_t<decltype(at(std::declval<Target&>()))>;
  Key<Target> key;
  key.path = path;
  key.description = description;
  key.range = range;
  if constexpr (IsOptional<Member>::value) {
    key.nullable = true;
    describe_type<typename Member::value_type>(key.type, key.choices);
  } else {
    describe_type<Member>(key.type, key.choices);
    key.nullable = key.type >= KeyType::kTextList;  // a list or map: null is empty
  }
  key.get = [at](const Target& target) { return to_value(at(target)); };
  key.set = [at](Target& target, const KeyValue& value) { from_value(at(target), value); };
  return key;
}

constexpr Range kPositive{0, 1e300, true, false};
constexpr Range kSigma{1e-8, 1e8, false, false};
constexpr Range kAtLeastOne{1, 0x1p53, false, false};
constexpr Range kRecords{1, 0x1p51, false, false};
constexpr Range kCount{0, 0x1p53, false, false};

// A member name cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define AT(member) \
  [](auto& c) -> auto& { return c.member; }
// NOLINTEND(bugprone-macro-parentheses)

struct Rows {
  std::vector<Key<Config>> keys;

  // A key outside kPrivacySection.
  template <class Access>
  Key<Config>& whole(const std::string& path, Access at, const std::string& description,
                     Range range = {}) {
    keys.push_back(row<Config>(path, at, description, range));
    return keys.back();
  }

  template <class Access>
  Key<Config>& add(std::string_view path, Access at, const std::string& description,
                   Range range = {}) {
    keys.push_back(row<Config>(std::string(kPrivacySection).append(path), at, description, range));
    return keys.back();
  }

  void switches() {
    Key<Config>& extends = keys.emplace_back();
    extends.path = std::string(kPrivacySection) + "extends";
    extends.description = "The preset on which this file builds";
    extends.type = KeyType::kChoice;
    extends.nullable = true;
    for (const std::string_view name : preset_names()) extends.choices.emplace_back(name);
    extends.get = [](const Config&) { return KeyValue{}; };
    extends.set = [](Config&, const KeyValue&) {};
    extends.is_position = true;

    add("enabled", AT(privacy.enabled), "false passes gradients through unchanged: not private");
    add("regulated", AT(privacy.regulated),
        "Reject everything without an audited guarantee: heuristics, debug, public noise");
    add("debug", AT(privacy.debug), "Permit noise_multiplier 0; marks the run not_private");
    add("secure", AT(privacy.secure),
        "Noise and sampling use a secret key; false uses the public seed and marks the run "
        "not_private");
    add("seed", AT(privacy.seed), "Seed of public randomness; of all randomness if secure is false",
        {0, 0x1p64, false, false});
  }

  void sampling() {
    add("subsampling", AT(privacy.subsampling), "How the records of a step are selected")
        .default_if = "from sampling_mode, if only that is set";
    add("sampling_mode", AT(privacy.sampling_mode), "The sampler that draws the batches")
        .default_if =
        "from subsampling: POISSON_V1, SHUFFLE_WITHOUT_REPLACEMENT_FIXED_SIZE_V1 or SEQUENTIAL_V1";
    add("adjacency", AT(privacy.adjacency),
        "Which data sets are neighbours; without declared_size, add_remove becomes zero_out")
        .default_if = "zero_out for shuffled epochs and sequential batches";
    add("declared_size", AT(privacy.declared_size),
        "Number of records, declared and public; never counted from the data", kRecords);
    add("sampling_rate", AT(privacy.sampling_rate),
        "Probability that a record takes part in a step", {0, 1, true, false})
        .default_if = "effective_batch_size / declared_size";
    add("effective_batch_size", AT(privacy.effective_batch_size),
        "Public divisor of the mean: expected or fixed number of records of an optimizer step",
        kRecords)
        .default_if = "sampling_rate x declared_size; in train, max(512, declared_size / 25)";
    add("truncated_batch", AT(privacy.truncated_batch),
        "Maximum number of records of a batch under TRUNCATED_POISSON_V1", kRecords);
  }

  void budget() {
    add("accountant", AT(privacy.accountant), "The accountant that bounds epsilon");
    add("accountant_granularity", AT(privacy.accountant_granularity),
        "When the budget is committed; whole epochs if the event of the sampler is the epoch")
        .default_if = "PER_EPOCH for balls-and-bins and shuffled epochs";
    add("log_space_accounting", AT(privacy.log_space_accounting),
        "Sum log-moments as logarithms, for runs beyond ten thousand steps");
    add("target_epsilon", AT(privacy.target_epsilon),
        "The budget; a step that would exceed it is not released", {0, 1e300, false, false});
    add("target_delta", AT(privacy.target_delta), "Failure probability of the promise",
        {0, 1, true, true});
    add("target_steps", AT(privacy.target_steps), "Planned number of optimizer steps", kAtLeastOne)
        .default_if = "1000 in train, if no noise is set";
    add("safety_budget_reserve", AT(privacy.safety_budget_reserve),
        "Fraction r of the budget: a warning appears at target_epsilon x (1 - r)",
        {0, 1, false, true});
    add("accounting_adjustment_factor", AT(privacy.accounting_adjustment_factor),
        "Ghost clipping: the accountant uses the rate min(1, factor x sampling_rate)",
        {1, 1e300, false, false});
    add("accounting_approximation_policy", AT(privacy.accounting_approximation_policy),
        "A declared approximation, recorded in the trace; it has no effect on bounds");
    add("verify_accounting", AT(privacy.verify_accounting),
        "Compute epsilon of every step by a second method and stop if they disagree; slow")
        .is_later = true;
    add("ghost_bound_hash", AT(privacy.ghost_bound_hash),
        "SHA-256 of the audited bound of ghost clipping; required if regulated")
        .digits = 64;
  }

  void clipping() {
    add("clipping.strategy", AT(privacy.clip_strategy),
        "How the gradient of a record is divided and bounded");
    Key<Config>& norm =
        add("clipping.norm", AT(privacy.clip_norm),
            "Bound of a record's norm, or adaptive: follows the norms privately", kPositive);
    norm.choices = {"adaptive"};
    norm.get = [](const Config& c) -> KeyValue {
      if (c.privacy.clip_norm_adaptive) return std::string("adaptive");
      return c.privacy.clip_norm;
    };
    norm.set = [](Config& c, const KeyValue& value) {
      const double* number = std::get_if<double>(&value);
      c.privacy.clip_norm_adaptive = number == nullptr;
      if (number != nullptr) c.privacy.clip_norm = *number;
    };
    add("clipping.ghost", AT(privacy.clip_ghost),
        "Norms from activations and output gradients, without per-sample gradients")
        .default_if = "true for the strategy ghost";
    Key<Config>& initial = add("clipping.adaptive.initial", AT(privacy.clip_norm),
                               "Initial bound of an adaptive norm", kPositive);
    initial.nullable = true;
    initial.default_if = "1.0 if the norm is adaptive";
    initial.get = [](const Config& c) -> KeyValue {
      if (!c.privacy.clip_norm_adaptive) return {};
      return c.privacy.clip_norm;
    };
    initial.set = [](Config& c, const KeyValue& value) {
      if (const double* number = std::get_if<double>(&value)) c.privacy.clip_norm = *number;
    };
    add("clipping.adaptive.noise", AT(privacy.adaptive_noise),
        "Standard deviation of the noise on each count of adaptive clipping", kPositive);
    add("clipping.adaptive.lower", AT(privacy.adaptive_lower), "Smallest bound of an adaptive norm",
        kPositive);
    add("clipping.adaptive.upper", AT(privacy.adaptive_upper), "Largest bound of an adaptive norm",
        kPositive);
    add("clip_norm_map", AT(privacy.clip_norm_map),
        "Bounds by name of layer, group or tensor, from public or noised norms", kPositive);
    add("sensitivity_map", AT(privacy.sensitivity_map),
        "Sensitivities by name, only from public or noised values", kPositive);
    add("fused_kernel", AT(privacy.fused_kernel),
        "One pass per layer for norm, scale and sum, if the strategy permits it");
    add("max_microbatch", AT(privacy.max_microbatch), "Number of records clipped at once",
        {1, 0x1p32, false, false});
    add("nonfinite", AT(privacy.nonfinite),
        "Treatment of a record with a NaN or infinity: abort the run, or count it as zero")
        .default_if = "zero if regulated, and for 'discreet train'";
    add("privacy.adaptive_accounting", AT(privacy.adaptive_accounting),
        "Whether adaptation is accounted (conservative) or not (heuristic: not private)");
    add("allow_nonprivate_adaptation", AT(privacy.allow_nonprivate_adaptation),
        "Permit heuristic; marks the run not_private");
    add("public_modules", AT(privacy.public_modules),
        "Modules that receive no private gradient, at no privacy cost");
    add("public_groups", AT(privacy.public_groups),
        "Groups that receive no private gradient, at no privacy cost");
  }

  void noise() {
    add("mechanism", AT(privacy.noise_family), "The name of noise.family in the specification")
        .alias_of = std::string(kPrivacySection) + "noise.family";
    add("noise_multiplier", AT(privacy.noise_multiplier),
        "Standard deviation of the noise / clip norm; 0 only with debug", {0, 1e8, false, false});
    add("noise.family", AT(privacy.noise_family), "Distribution of the noise");
    add("noise.discrete", AT(privacy.noise_discrete),
        "Grid step of the discrete families, a power of two, in the unit of the gradient",
        kPositive);
    add("noise.per_layer_multiplier", AT(privacy.per_layer_multiplier),
        "Factors on sigma by name of layer, group or tensor", kSigma);
    add("noise.compression", AT(privacy.compression), "Which coordinates are released");
    add("noise.compression_keep", AT(privacy.compression_keep),
        "Fraction of the coordinates that compression keeps", {0, 1, true, false});
    add("sigma_map", AT(privacy.sigma_map),
        "Noise multipliers sigma_g by name of layer, group or tensor, for privacy_allocation "
        "custom; "
        "noise_multiplier must be their effective multiplier, unless the mode determines the noise",
        kSigma);
    add("privacy_allocation", AT(privacy.privacy_allocation),
        "How noise is divided among the parts of the model");
    add("noise_seed_per_step", AT(privacy.noise_seed_per_step),
        "Use the counters that the specification derives from step and tensor");
  }

  void phase(const std::string& name, PhaseOverride DpConfig::*member, bool has_end) {
    const std::string path = "phases." + name + ".";
    const auto at = [member](auto field) {
      return [ member, field ](auto& c) -> auto& { return (c.privacy.*member).*field; };
    };
    if (has_end) {
      add(path + "until_step", at(&PhaseOverride::until_step),
          "The first step after the " + name + " phase", kCount);
    }
    add(path + "steps", at(&PhaseOverride::steps),
        "Its length" + std::string(has_end ? ", instead of its end" : ", up to target_steps"),
        kCount);
    add(path + "noise_multiplier", at(&PhaseOverride::noise_multiplier),
        "Replaces noise_multiplier in this phase", {0, 1e8, false, false});
    add(path + "clip_norm", at(&PhaseOverride::clip_norm), "Replaces clipping.norm in this phase",
        kPositive);
  }

  void schedule() {
    add("mode", AT(privacy.mode), "How sigma follows the budget").default_if =
        "meet_exactly_at_target_steps in train, if no noise is set";
    add("decay.factor", AT(privacy.decay_factor),
        "step_decay: factor applied to sigma every decay.every steps", {0, 1e3, true, false});
    add("decay.every", AT(privacy.decay_every), "step_decay: steps between two decays",
        kAtLeastOne);
    add("projection.policy", AT(privacy.projection_policy),
        "Action if the projected epsilon exceeds the target; a heuristic, never a bound");
    add("training_phase", AT(privacy.training_phase),
        "The current phase, if phases have no boundaries");
    phase("warmup", &DpConfig::warmup, true);
    phase("main", &DpConfig::main, true);
    phase("cooldown", &DpConfig::cooldown, false);
    add("gradient_accumulation_steps", AT(privacy.gradient_accumulation_steps),
        "Number of microbatches per optimizer step", {1, 0x1p32, false, false});
    // Present in the structure only when the file says something about it.
    const auto position = [](auto member) {
      return [member](const Config& c) -> KeyValue {
        if (!c.privacy.accumulation_context) return {};
        return (*c.privacy.accumulation_context).*member;
      };
    };
    const auto move = [](auto member) {
      return [member](Config& c, const KeyValue& value) {
        if (std::holds_alternative<std::monostate>(value)) return;
        auto& context = c.privacy.accumulation_context;
        if (!context) context.emplace();
        from_value((*context).*member, value);
      };
    };
    Key<Config>& current = add("accumulation_context.current_step", AT(privacy.decay_every),
                               "The current microbatch, from 0", kCount);
    current.get = position(&AccumulationContext::current_step);
    current.set = move(&AccumulationContext::current_step);
    Key<Config>& final = add("accumulation_context.is_final", AT(privacy.enabled),
                             "Whether it is the last of its optimizer step");
    final.get = position(&AccumulationContext::is_final);
    final.set = move(&AccumulationContext::is_final);
    for (Key<Config>* key : {&keys[keys.size() - 2], &keys.back()}) {
      key->nullable = true;
      key->is_position = true;
    }
  }

  void rest() {
    add("modules", AT(privacy.modules), "Overrides by module name");
    add("groups", AT(privacy.groups), "Overrides by group name");
    add("parallelism.type", AT(privacy.parallelism),
        "The parallel engine; resolves to the engine of the process");
    add("parallelism.hierarchical", AT(privacy.hierarchical),
        "Reduce within a node first, then between nodes, in a fixed order");
    add("metrics.release", AT(privacy.metrics_release),
        "dp: release noised clip fractions and quantiles within the budget; none: keep them "
        "confidential");
  }

  void data() {
    whole("data.format", AT(data.format),
          "Source of the records: the embedded handwritten digits, or files");
    whole("data.train", AT(data.train),
          "File of the training records (idx, npy: of their features), relative to the "
          "configuration file");
    whole("data.train_labels", AT(data.train_labels), "idx, npy: file of their labels");
    whole("data.test", AT(data.test), "File of held-out records, in the same format");
    whole("data.test_labels", AT(data.test_labels), "idx, npy: file of their labels");
    whole("data.holdout", AT(data.holdout),
          "Without a test file: fraction of the records held out, by a public coin for each record",
          {0, 1, false, true});
    whole("data.separator", AT(data.separator), "csv: the character between fields");
    whole("data.header", AT(data.header),
          "csv: names of the columns, in order, of files without a header line")
        .is_later = true;
    whole("data.trim", AT(data.trim), "csv: remove spaces around every field and name").is_later =
        true;
    whole("data.map", AT(data.map),
          "csv: by column, words that stand for another word, such as another spelling of a class")
        .is_later = true;
    Key<Config>& missing =
        whole("data.missing", AT(data.missing),
              "csv: words for a missing value; a missing number counts as the middle of its "
              "bounds, and a missing word as none of the vocabulary unless declared there");
    missing.is_later = true;
    missing.may_hold_empty = true;
    whole("data.label", AT(data.label), "csv: the column to predict");
    whole("data.classes", AT(data.classes),
          "csv: the words of the label, in order; omit them for a number");
    whole("data.label_bounds", AT(data.label_bounds),
          "csv: bounds of a numeric label, declared, not derived from the data");
    whole("data.numeric", AT(data.numeric),
          "csv: numeric columns and their bounds, declared, not derived from the data");
    whole("data.categorical", AT(data.categorical),
          "csv: categorical columns and their vocabularies; \"*\" matches every other word");
    whole("data.hashed", AT(data.hashed),
          "csv: categorical columns without a vocabulary: the SHA-256 of a word, public and fixed, "
          "chooses one of hash_buckets features")
        .is_later = true;
    whole("data.hash_buckets", AT(data.hash_buckets), "csv: number of features of a hashed column",
          {2, 65536, false, false})
        .is_later = true;
    whole("data.private_bounds", AT(data.private_bounds),
          "csv: numeric columns whose bounds are released privately, within the budget");
    whole("data.private_bounds_noise", AT(data.private_bounds_noise),
          "Noise multiplier of that release, which is a separate event", kSigma);
    whole("data.on_bad_row", AT(data.on_bad_row),
          "csv, npy: reject a file with an unreadable row, or skip such rows")
        .is_later = true;
    whole("data.class_count", AT(data.class_count), "idx, npy: number of classes",
          {2, 0x1p32, false, false})
        .default_if = "10 for idx";
    whole("data.bounds", AT(data.bounds),
          "npy: bounds of every feature, declared, not derived from the data");
    whole("data.image", AT(data.image), "csv, npy: [height, width] if records are images",
          {1, 0x1p20, false, false});
  }

  void model() {
    whole("model.kind", AT(model.kind),
          "linear: regression; softmax: one linear layer to classes; mlp: hidden layers");
    whole("model.hidden", AT(model.hidden), "mlp: sizes of the hidden layers",
          {1, 0x1p20, false, false});
    whole("model.activation", AT(model.activation), "mlp: activation after each hidden layer");
    whole("model.groups", AT(model.groups),
          "Groups of layers (layer0, layer1 and so on) by name, for per_group, hybrid and maps; a "
          "layer in none is a group of its own")
        .is_later = true;
    whole("model.features", AT(model.features),
          "A fixed map applied to each record separately, at no privacy cost");
    whole("model.scattering_groups", AT(model.scattering_groups),
          "scattering: number of groups in which each record is normalised separately; 0: none",
          {0, 0x1p20, false, false});
    whole("model.fourier_count", AT(model.fourier_count), "fourier: number of random features",
          {1, 0x1p20, false, false});
    whole("model.fourier_scale", AT(model.fourier_scale),
          "fourier: standard deviation of the frequencies", kPositive);
  }

  void optimizer() {
    constexpr Range kDecay{0, 1, false, true};
    whole("optimizer.kind", AT(optimizer.kind),
          "How released gradients update the parameters, at no privacy cost");
    whole("optimizer.rate", AT(optimizer.rate), "Learning rate", kPositive).default_if =
        "in train, from the budget, declared_size and the columns";
    whole("optimizer.momentum", AT(optimizer.momentum), "sgd: factor applied to the previous step",
          kDecay);
    whole("optimizer.beta1", AT(optimizer.beta1), "adam: decay of the first moment", kDecay);
    whole("optimizer.beta2", AT(optimizer.beta2), "adam: decay of the second moment", kDecay);
    Key<Config>& floor = whole(
        "optimizer.floor", AT(optimizer.floor),
        "adam: smallest root of the second moment, after subtracting the variance of the noise; or "
        "noise: the standard deviation of the noise",
        kPositive);
    floor.choices = {"noise"};
    floor.default_if = "noise in train";
    floor.get = [](const Config& c) -> KeyValue {
      if (c.optimizer.floor_is_noise) return std::string("noise");
      return c.optimizer.floor;
    };
    floor.set = [](Config& c, const KeyValue& value) {
      const double* number = std::get_if<double>(&value);
      c.optimizer.floor_is_noise = number == nullptr;
      if (number != nullptr) c.optimizer.floor = *number;
    };
    whole("optimizer.weight_decay", AT(optimizer.weight_decay),
          "Fraction by which a parameter decays per unit of learning rate",
          {0, 1e300, false, false});
    whole("optimizer.schedule", AT(optimizer.schedule),
          "How the rate decreases to 0 at target_steps, unless constant");
    whole("optimizer.average", AT(optimizer.average),
          "Decay of the running average of parameters, which becomes the model", kDecay)
        .default_if = "1 - 10 / steps in train, from 50 steps on";
  }

  void run() {
    whole("run.compute_dtype", AT(run.compute_dtype),
          "Type of the released gradients; everything before the release is binary64");
    whole("run.epochs", AT(run.epochs),
          "Alternative to target_steps: number of passes of ceil(declared_size / "
          "effective_batch_size) steps",
          {1, 0x1p32, false, false});
    whole("run.checkpoint_every", AT(run.checkpoint_every),
          "Steps between checkpoints; 0: only at the end", kCount);
  }

  void corpus() {
    whole("corpus.policy", AT(corpus.policy),
          "Policy of a corpus of signed contributions: their classes, bounds, layers and noise");
    whole("corpus.descriptors", AT(corpus.descriptors),
          "Anchor file of 'attest': a record belongs to the contribution whose anchor is the "
          "SHA-256 of its line of data.train");
    whole("corpus.uses", AT(corpus.uses),
          "Confidential store of uses, shared by all runs of the corpus");
    whole("corpus.ledger", AT(corpus.ledger),
          "Ledger, shared by all runs of the corpus and created by the first (default: ledger.db "
          "beside the policy)");
    whole("corpus.ledger_key", AT(corpus.ledger_key),
          "Private key of 'keygen' that signs the ledger: that of the steward");
    whole("corpus.at", AT(corpus.at),
          "Start of the epoch in which contributions are admitted, such as 2026-11-16T12:00:00Z");
    whole("corpus.statements", AT(corpus.statements), "Rotations and revocations of 'keygen'");
    whole("corpus.withdrawn", AT(corpus.withdrawn),
          "Hashes of withdrawn descriptors, one per line");
    whole("corpus.injection", AT(corpus.injection),
          "Number of draws that make up the noise of a step; their sum has the same distribution");
    whole(
        "corpus.ledger_epoch_steps", AT(corpus.ledger_epoch_steps),
        "Steps that the ledger reserves and signs together: how often it has a signed checkpoint, "
        "and how soon a withdrawal takes effect; by default one epoch of the data",
        kAtLeastOne)
        .is_later = true;
  }
};

}  // namespace

const std::vector<Key<Config>>& config_keys() {
  static const std::vector<Key<Config>> all = [] {
    Rows rows;
    rows.switches();
    rows.budget();
    rows.sampling();
    rows.clipping();
    rows.noise();
    rows.schedule();
    rows.rest();
    rows.data();
    rows.model();
    rows.optimizer();
    rows.run();
    rows.corpus();
    return std::move(rows.keys);
  }();
  return all;
}

const std::vector<Key<Override>>& override_keys() {
  static const std::vector<Key<Override>> all = {
      row<Override>("clip_norm", AT(clip_norm), "Its bound", kPositive),
      row<Override>("sigma_multiplier", AT(sigma_multiplier), "Factor applied to its sigma",
                    kSigma),
      row<Override>("public", AT(is_public), "It receives no private gradient"),
  };
  return all;
}

#undef AT

}  // namespace discreet
