#include "discreet/config/config_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/config/config_preset.h"
#include "discreet/config/config_table.h"
#include "discreet/config/config_text_impl.h"
#include "discreet/config/config_value_impl.h"
#include "discreet/config/prevalidation.h"

namespace discreet {
namespace {

constexpr const char* kOperator = "read_config";

const KeyTree<Config>& config_tree() {
  static const KeyTree<Config> tree = tree_of(config_keys());
  return tree;
}

const Key<Config>* find_key(std::string_view path) {
  for (const Key<Config>& key : config_keys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

std::string privacy(std::string_view path) { return std::string(kPrivacySection).append(path); }

// What was given for each key, by canonical path, and by what.
struct Given {
  KeyValue value;
  std::string where;
  int rank;  // 0 preset, 1 file, 2 setting
};

class Reader {
 public:
  Reader(std::string_view yaml, std::string_view name, std::span<const std::string> settings)
      : name_(name) {
    read_file(parse_yaml(yaml, name));
    for (const std::string& setting : settings) read_setting(setting);
    apply_preset();
  }

  ReadConfig finish() {
    ReadConfig read;
    for (const Key<Config>& key : config_keys()) {
      const auto found = given_.find(key.path);
      if (found == given_.end()) continue;
      key.set(read.config, found->second.value);
      read.where.emplace(key.path, found->second.where);
    }
    fill_defaults(read.config.privacy);
    require(read.config.privacy);
    read.preset = std::move(preset_);
    return read;
  }

 private:
  bool has(std::string_view path) const { return given_.contains(privacy(path)); }

  void take(const Key<Config>& key, const Yaml& node, const Source& source, int line, int rank) {
    KeyValue value = read_value(key, node, source, line, key.path);
    const std::string where = source.at(line);
    const std::string& path = key.alias_of.empty() ? key.path : key.alias_of;
    const auto before = given_.find(path);
    if (before != given_.end() && before->second.rank == rank && rank == 1 &&
        before->second.value != value) {
      invalid_config(kOperator,
                     "{}: {} differs from {}, which is an alias of the same key; keep one of them",
                     where, key.path, before->second.where);
    }
    given_.insert_or_assign(path, Given{std::move(value), where, rank});
  }

  void read_file(const Yaml& root) {
    if (root.kind == Yaml::Kind::kNull) {
      invalid_config(kOperator, "{}: the configuration is empty; 'discreet init' writes one",
                     name_);
    }
    const Source file{name_};
    walk_keys<Config>(config_tree(), root, "", file,
                      [&](const Key<Config>& key, const Yaml& node, int line) {
                        take(key, node, file, line, 1);
                      });
  }

  void read_setting(const std::string& setting) {
    const std::string where = fmt::format("--set {}", setting);
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      invalid_config(kOperator, "{}: expected key=value", where);
    }
    // "key = value" is as clear; YAML passes over the spaces before the value.
    const std::string path = setting.substr(0, setting.find_last_not_of(' ', equals - 1) + 1);
    const Key<Config>* key = find_key(path);
    if (key == nullptr) key = find_key(privacy(path));
    if (key == nullptr) {
      std::vector<std::string> known;
      for (const Key<Config>& each : config_keys()) {
        known.push_back(each.path);
        if (each.path.starts_with(kPrivacySection)) {
          known.push_back(each.path.substr(kPrivacySection.size()));
        }
      }
      const auto meant = nearest(path, known);
      invalid_config(kOperator, "{}: unknown key {}{}", where, path,
                     meant ? fmt::format("; did you mean {}?", *meant)
                           : "; 'discreet check --reference' lists all keys");
    }
    take(*key, parse_yaml(setting.substr(equals + 1), where), {where, false}, 0, 2);
  }

  void apply_preset() {
    const auto extends = given_.find(privacy("extends"));
    if (extends == given_.end()) return;
    const auto* name = std::get_if<std::string>(&extends->second.value);
    if (name == nullptr) return;
    for (const Preset& preset : presets()) {
      if (preset.name != *name) continue;
      preset_.emplace(ReadPreset{*name, {}, {}});
      for (const PresetKey& each : preset.keys) {
        const std::string path = privacy(each.path);
        const Source source{fmt::format("preset {}", *name), false};
        const Yaml node = parse_yaml(each.value, *name);
        const Key<Config>& key = *find_key(path);
        const auto given = given_.find(path);
        if (given == given_.end()) {
          take(key, node, source, 0, 0);
        } else if (given->second.value != read_value(key, node, source, 0, path)) {
          preset_->replaced.push_back(fmt::format("{} {} replaces {} of the preset {}", each.path,
                                                  yaml_text(given->second.value), each.value,
                                                  *name));
          continue;
        }
        preset_->kept.emplace_back(each.path);
      }
    }
  }

  void fill_defaults(DpConfig& c) const {
    if (has("sampling_mode") && !has("subsampling"))
      c.subsampling = subsampling_of(c.sampling_mode);
    if (has("subsampling") && !has("sampling_mode")) {
      c.sampling_mode = c.subsampling == Subsampling::kPoisson ? SamplingMode::kPoisson
                        : c.subsampling == Subsampling::kNone  ? SamplingMode::kSequential
                                                               : SamplingMode::kFixedSize;
    }
    if (!has("adjacency") && (c.sampling_mode == SamplingMode::kShuffledEpoch ||
                              c.sampling_mode == SamplingMode::kSequential)) {
      c.adjacency = accounting::Adjacency::kZeroOut;
    }
    if (!has("accountant_granularity") && is_epoch_event(c.sampling_mode)) {
      c.accountant_granularity = Granularity::kPerEpoch;
    }
    if (!has("nonfinite") && c.regulated) c.nonfinite = NonfinitePolicy::kZero;
  }

  void require(const DpConfig& c) const {
    if (c.enabled && !has("target_epsilon")) {
      invalid_config(kOperator, "{}: {} is missing; set the budget, for example 3", name_,
                     privacy("target_epsilon"));
    }
    const auto initial = given_.find(privacy("clipping.adaptive.initial"));
    if (initial != given_.end() && !c.clip_norm_adaptive &&
        !std::holds_alternative<std::monostate>(initial->second.value)) {
      invalid_config(
          kOperator,
          "{}: {} has an effect only with clipping.norm: adaptive; set the bound as clipping.norm",
          initial->second.where, initial->first);
    }
  }

  std::string name_;
  std::map<std::string, Given> given_;
  std::optional<ReadPreset> preset_;
};

// Which keys of a preset act; those without effect have a note of their own.
void describe(const ReadPreset& preset, const DpConfig& c, std::vector<std::string>& notes) {
  if (c.mode == ScheduleMode::kMeetExactly &&
      std::ranges::count(preset.kept, std::string("noise_multiplier")) > 0) {
    notes.emplace_back(
        "noise_multiplier has no effect: meet_exactly_at_target_steps determines the noise");
  }
  std::vector<std::string_view> acting;
  for (const std::string& key : preset.kept) {
    const bool has_note = std::ranges::any_of(
        notes, [&](const std::string& note) { return note.starts_with(key + " "); });
    if (!has_note) acting.push_back(key);
  }
  notes.insert(notes.end(), preset.replaced.begin(), preset.replaced.end());
  notes.push_back(fmt::format("the preset {} sets {}", preset.name, fmt::join(acting, ", ")));
}

// Sentences of prevalidate() and resolve() begin with a key: say where it was given.
[[noreturn]] void locate(const Error& error, const ReadConfig& read, std::string_view name) {
  const std::string& sentence = error.sentence();
  const std::string* where = nullptr;
  std::size_t longest = 0;
  for (const auto& [path, place] : read.where) {
    if (sentence.starts_with(path) && path.size() > longest) {
      where = &place;
      longest = path.size();
    }
  }
  fail(error.code(), error.op(), "{}: {}", where != nullptr ? *where : std::string(name), sentence);
}

}  // namespace

ReadConfig read_config(std::string_view yaml, std::string_view name,
                       std::span<const std::string> settings) {
  return Reader(yaml, name, settings).finish();
}

LoadedConfig load_config(std::string_view yaml, std::string_view name,
                         std::span<const std::string> settings) {
  const ReadConfig read = read_config(yaml, name, settings);
  try {
    const Config config = without_epochs(read.config);
    prevalidate(config.privacy, 0);
    Resolved resolved = resolve(config.privacy);
    LoadedConfig loaded{config, resolved.accumulation, std::move(resolved.notes)};
    if (read.preset) describe(*read.preset, config.privacy, loaded.notes);
    loaded.config.privacy = std::move(resolved.config);
    return loaded;
  } catch (const Error& error) {
    locate(error, read, name);
  }
}

}  // namespace discreet
