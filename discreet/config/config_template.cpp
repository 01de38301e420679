#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "discreet/config/config_document.h"
#include "discreet/config/config_preset.h"
#include "discreet/config/config_table.h"
#include "discreet/config/config_text_impl.h"

namespace discreet {
namespace {

// What a first run on the embedded digits needs.
const std::map<std::string, std::string>& essentials() {
  static const std::map<std::string, std::string> keys = {
      {"enabled", "true"},         {"target_epsilon", "8.0"}, {"target_delta", "1.0e-05"},
      {"target_steps", "180"},     {"declared_size", "1437"}, {"effective_batch_size", "256"},
      {"noise_multiplier", "2.0"}, {"nonfinite", "zero"}};
  return keys;
}

struct Writer {
  std::map<std::string, std::string> active;  // by path
  std::map<std::string, std::string> preset;  // by path: what the preset sets

  struct Block {
    std::string text;
    bool is_active = false;
  };

  Block key_block(const Key<Config>& key, const std::string& name, std::size_t indent) const {
    std::string about = fmt::format("{}. Takes {}", key.description, expectation(key));
    if (!key.default_if.empty()) about += fmt::format("; by default {}", key.default_if);
    Block block{yaml_comment(indent, about + '.'), false};
    std::string value = yaml_text(key.get(Config{}));
    if (const auto by = preset.find(key.path); by != preset.end()) value = by->second;
    if (const auto given = active.find(key.path); given != active.end()) {
      value = given->second;
      block.is_active = true;
    }
    block.text +=
        fmt::format("{:{}}{}{}: {}\n", "", indent, block.is_active ? "" : "#", name, value);
    return block;
  }

  Block section(const KeyTree<Config>& tree, std::size_t indent) const {
    Block all;
    for (const KeyTree<Config>& child : tree.children) {
      Block one;
      if (child.key != nullptr) {
        if (!child.key->alias_of.empty() || child.key->path.ends_with(".extends")) continue;
        one = key_block(*child.key, child.name, indent);
      } else {
        const Block below = section(child, indent + 2);
        one = {fmt::format("{:{}}{}{}:\n{}", "", indent, below.is_active ? "" : "#", child.name,
                           below.text),
               below.is_active};
      }
      all.text += one.text;
      all.is_active = all.is_active || one.is_active;
    }
    return all;
  }
};

std::string cell(std::string text) {
  for (std::size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2)) {
    text.insert(i, 1, '\\');
  }
  return text;
}

std::string heading(const std::string& section) {
  return fmt::format("\n### `{}`\n\n| key | takes | default | meaning |\n|---|---|---|---|\n",
                     section);
}

}  // namespace

std::string config_template(std::optional<std::string_view> name) {
  const Preset* preset = find_preset(name);
  Writer writer;
  const std::string prefix(kPrivacySection);
  for (const auto& [path, value] : essentials()) writer.active[prefix + path] = value;
  if (preset != nullptr) {
    for (const PresetKey& key : preset->keys) {
      writer.preset[prefix + std::string(key.path)] = key.value;
      writer.active.erase(prefix + std::string(key.path));
    }
  }
  std::string text =
      yaml_comment(0,
                   "A configuration of discreet. Lines that start with '#' and a key "
                   "show defaults: remove the '#' to change one.") +
      yaml_comment(0, "Check it with: discreet check FILE");
  const KeyTree<Config> tree = tree_of(config_keys());
  for (const KeyTree<Config>& top : tree.children) {
    KeyTree<Config> one;
    one.children.push_back(top);
    text += '\n' + writer.section(one, 0).text;
  }
  if (preset != nullptr) {
    const std::string line = "  differential_privacy:\n";
    text.insert(text.find(line) + line.size(),
                yaml_comment(4, fmt::format("{}. The keys that it sets are shown with its values.",
                                            preset->summary)) +
                    fmt::format("    extends: {}\n", preset->name));
  }
  return text;
}

std::string config_reference() {
  std::string out;
  std::string section;
  for (const Key<Config>& key : config_keys()) {
    const bool privacy = key.path.starts_with(kPrivacySection);
    const std::size_t cut = privacy ? kPrivacySection.size() : key.path.find('.') + 1;
    const std::string here = key.path.substr(0, cut - 1);
    if (here != section) out += heading(section = here);
    std::string standard = fmt::format("`{}`", yaml_text(key.get(Config{})));
    if (!key.default_if.empty()) standard += "; " + key.default_if;
    if (key.path.ends_with(".target_epsilon")) standard = "required if enabled";
    if (!key.alias_of.empty()) standard = "that of `noise.family`";
    out += fmt::format("| `{}` | {}{} | {} | {} |\n", key.path.substr(cut), cell(expectation(key)),
                       key.nullable ? ", or null" : "", cell(standard), cell(key.description));
  }
  out += heading("modules.NAME` and `groups.NAME");
  for (const Key<Override>& key : override_keys()) {
    out += fmt::format("| `{}` | {}, or null | `null` | {} |\n", key.path, cell(expectation(key)),
                       cell(key.description));
  }
  out += "\n### Presets\n";
  for (const Preset& preset : presets()) {
    out += fmt::format("\n`extends: {}`: {}.\n\n```yaml\n", preset.name, preset.summary);
    for (const PresetKey& key : preset.keys) out += fmt::format("{}: {}\n", key.path, key.value);
    out += "```\n";
  }
  return out;
}

}  // namespace discreet
