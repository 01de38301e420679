#include <fmt/format.h>

#include <filesystem>

#include "discreet/base/cbor.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/config/config_text_impl.h"

namespace discreet {
namespace {

struct ToCbor {
  cbor::Value operator()(std::monostate) const { return nullptr; }
  cbor::Value operator()(bool truth) const { return truth; }
  cbor::Value operator()(std::uint64_t integer) const { return integer; }
  cbor::Value operator()(double number) const { return number + 0.0; }  // -0 is 0
  cbor::Value operator()(const std::string& text) const { return text; }
  cbor::Value operator()(const std::vector<std::string>& names) const {
    return cbor::array(std::vector<cbor::Value>(names.begin(), names.end()));
  }
  template <class T>
  cbor::Value operator()(const std::vector<T>& numbers) const {
    std::vector<cbor::Value> items;
    for (const T& number : numbers) items.push_back((*this)(number));
    return cbor::array(std::move(items));
  }
  template <class T>
  cbor::Value operator()(const std::map<std::string, T>& by_name) const {
    std::vector<cbor::Entry> entries;
    for (const auto& [name, value] : by_name) entries.push_back({name, (*this)(value)});
    return cbor::map(std::move(entries));
  }
  cbor::Value operator()(const OverrideMap& overrides) const {
    std::vector<cbor::Entry> entries;
    for (const auto& [name, said] : overrides) {
      std::vector<cbor::Entry> inner;
      for (const Key<Override>& key : override_keys()) {
        inner.push_back({key.path, std::visit(*this, key.get(said))});
      }
      entries.push_back({name, cbor::map(std::move(inner))});
    }
    return cbor::map(std::move(entries));
  }
};

bool is_setting(const Key<Config>& key) { return key.alias_of.empty() && !key.is_position; }

// A run without a corpus is what it was before there was such a section.
bool is_written(const Key<Config>& key, const Config& config) {
  if (key.is_later && key.get(config) == key.get(Config{})) return false;
  return is_setting(key) && !(config.corpus == CorpusConfig{} && key.path.starts_with("corpus."));
}

void write_section(std::string& out, const KeyTree<Config>& tree, const Config& config,
                   std::size_t indent) {
  for (const KeyTree<Config>& child : tree.children) {
    if (child.key != nullptr) {
      if (!is_written(*child.key, config)) continue;
      out +=
          fmt::format("{:{}}{}: {}\n", "", indent, child.name, yaml_text(child.key->get(config)));
      continue;
    }
    std::string below;
    write_section(below, child, config, indent + 2);
    if (!below.empty()) out += fmt::format("{:{}}{}:\n{}", "", indent, child.name, below);
  }
}

}  // namespace

std::vector<std::optional<std::string>*> files_of(Config& config) {
  DataConfig& d = config.data;
  CorpusConfig& c = config.corpus;
  return {&d.train,       &d.train_labels, &d.test,   &d.test_labels, &c.policy,
          &c.descriptors, &c.uses,         &c.ledger, &c.statements,  &c.withdrawn};
}

Config without_places(Config config) {
  for (std::optional<std::string>* file : files_of(config))
    if (*file) *file = std::filesystem::path(**file).filename().string();
  config.corpus.ledger_key.reset();
  return config;
}

Bytes canonical_bytes(const Config& given) {
  const Config resolved = given.has_whole_paths ? given : without_places(given);
  std::vector<cbor::Entry> entries;
  for (const Key<Config>& key : config_keys()) {
    if (is_written(key, resolved))
      entries.push_back({key.path, std::visit(ToCbor{}, key.get(resolved))});
  }
  return cbor::encode(cbor::array({"discreet.config.v1", cbor::map(std::move(entries))}));
}

Digest config_hash(const Config& resolved) { return sha256(canonical_bytes(resolved)); }

std::string write_yaml(const Config& resolved) {
  std::string out;
  write_section(out, tree_of(config_keys()), resolved, 0);
  return out;
}

}  // namespace discreet
