#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "discreet/admission/policy.h"
#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"
#include "discreet/base/yaml.h"

namespace discreet::admission {
namespace {

// One mapping of the file: returns its entries, and at the end rejects those that were not read.
class Section {
 public:
  Section(const Yaml& node, std::string_view file, std::string path)
      : node_(node), file_(file), path_(std::move(path)) {
    if (node.kind != Yaml::Kind::kMap) fail(node.line, path_, "must be a mapping of keys");
  }

  [[noreturn]] void fail(int line, const std::string& path, const std::string& sentence) const {
    invalid_config("read_policy", "{}:{}: {} {}", file_, std::max(line, 1),
                   path.empty() ? "the policy" : path, sentence);
  }

  const Yaml* find(const char* key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
    for (const Yaml::Entry& entry : node_.entries)
      if (entry.key == key && entry.value.kind != Yaml::Kind::kNull) return &entry.value;
    return nullptr;
  }
  const Yaml& at(const char* key) {
    if (const Yaml* value = find(key)) return *value;
    fail(node_.line, path_of(key), "is missing");
  }
  Section section(const char* key) { return {at(key), file_, path_of(key)}; }
  std::string path_of(const std::string& key) const {
    return path_.empty() ? key : fmt::format("{}.{}", path_, key);
  }

  std::string text(const char* key) {
    const Yaml& value = at(key);
    if (value.kind != Yaml::Kind::kScalar || value.text.empty() || value.text.size() > 256)
      fail(value.line, path_of(key), "must be a text of 1 to 256 bytes");
    return value.text;
  }
  Scaled number(const char* key) { return number_of(at(key), path_of(key)); }
  Scaled number_of(const Yaml& value, const std::string& path) const {
    if (value.kind != Yaml::Kind::kScalar || value.quoted)
      fail(value.line, path, "must be a number");
    try {
      const Scaled out = parse_scaled(value.text, path);
      if (out.units > 0) return out;
    } catch (const Error& error) {
      invalid_config("read_policy", "{}:{}: {}", file_, value.line, error.sentence());
    }
    fail(value.line, path, "is 0; it must be positive");
  }
  std::uint32_t whole(const char* key, std::uint32_t least) {
    return whole_of(at(key), path_of(key), least);
  }
  std::uint32_t whole_of(const Yaml& value, const std::string& path, std::uint32_t least) const {
    std::uint32_t out = 0;
    const std::string& t = value.text;
    const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), out);
    if (value.kind != Yaml::Kind::kScalar || value.quoted || t.empty() || error != std::errc{} ||
        end != t.data() + t.size() || out < least)
      fail(value.line, path, fmt::format("must be an integer from {} to 2^32 - 1", least));
    return out;
  }
  bool truth(const char* key) {
    const Yaml* value = find(key);
    if (value == nullptr) return false;
    if (value->kind == Yaml::Kind::kScalar && !value->quoted) {
      if (value->text == "true") return true;
      if (value->text == "false") return false;
    }
    fail(value->line, path_of(key), "must be true or false");
  }
  template <class Enum>
  Enum choice(const char* key, std::initializer_list<Enum> all) {
    const Yaml& value = at(key);
    std::vector<std::string> words;
    for (const Enum each : all) {
      words.emplace_back(to_string(each));
      if (value.kind == Yaml::Kind::kScalar && value.text == words.back()) return each;
    }
    fail(value.line, path_of(key), fmt::format("must be one of {}", fmt::join(words, ", ")));
  }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> out;
    for (const Yaml& item : list(key).items) {
      if (item.kind != Yaml::Kind::kScalar || item.text.empty())
        fail(item.line, path_of(key), "must be a list of names");
      if (std::find(out.begin(), out.end(), item.text) != out.end())
        fail(item.line, path_of(key), fmt::format("names {} twice", excerpt(item.text)));
      out.push_back(item.text);
    }
    if (out.empty()) fail(at(key).line, path_of(key), "must not be empty");
    return out;
  }
  const Yaml& list(const char* key) {
    const Yaml& value = at(key);
    if (value.kind != Yaml::Kind::kList) fail(value.line, path_of(key), "must be a list");
    return value;
  }
  PublicKey public_key(const char* key) {
    const Yaml& value = at(key);
    try {
      return PublicKey::from_text(text(key));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIoError) throw;
      fail(value.line, path_of(key), "is not a public key: " + error.sentence());
    }
  }

  // Rejects the keys that were not read.
  void end() const {
    for (const Yaml::Entry& entry : node_.entries) {
      if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
      const auto meant = nearest(entry.key, known_);
      fail(entry.line, path_of(entry.key),
           meant ? fmt::format("is an unknown key; did you mean {}?", *meant)
                 : fmt::format("is an unknown key; the keys here are {}", fmt::join(known_, ", ")));
    }
  }
  const Yaml& node() const { return node_; }
  std::string_view file() const { return file_; }

 private:
  const Yaml& node_;
  std::string_view file_;
  std::string path_;
  std::vector<std::string> known_;
};

std::vector<std::uint32_t> mask(Section& section, const char* key) {
  std::vector<std::uint32_t> out;
  if (section.find(key) == nullptr) return out;
  for (const Yaml& item : section.list(key).items)
    out.push_back(section.whole_of(item, section.path_of(key), 0));
  std::sort(out.begin(), out.end());
  if (out.empty() || std::adjacent_find(out.begin(), out.end()) != out.end())
    section.fail(section.at(key).line, section.path_of(key),
                 "must be a list of distinct numbers, not empty");
  return out;
}

DepthProfile read_profile(Section section) {
  DepthProfile out;
  int kinds = 0;
  const auto pair = [&](const char* key) -> const Yaml& {
    const Yaml& value = section.list(key);
    if (value.items.size() != 2)
      section.fail(value.line, section.path_of(key), "must be a list of two");
    return value;
  };
  if (section.find("depth") != nullptr) {
    const Yaml& value = pair("depth");
    const std::string path = section.path_of("depth");
    const Scaled from = value.items[0].text == "0" && !value.items[0].quoted
                            ? Scaled{0}
                            : section.number_of(value.items[0], path);
    const Scaled to = section.number_of(value.items[1], path);
    if (!(from < to) || to.units > Scaled::kUnit)
      section.fail(value.line, path, "must be two ascending fractions from 0 to 1");
    out.where = DepthBand{from, to};
    ++kinds;
  }
  if (section.find("layers") != nullptr) {
    const Yaml& value = pair("layers");
    const std::string path = section.path_of("layers");
    const LayerBand band{section.whole_of(value.items[0], path, 0),
                         section.whole_of(value.items[1], path, 0)};
    if (band.first > band.last) section.fail(value.line, path, "must ascend");
    out.where = band;
    ++kinds;
  }
  if (section.find("modules") != nullptr) {
    out.where = ModuleSet{section.texts("modules")};
    ++kinds;
  }
  if (const Yaml* adapter = section.find("adapter")) {
    // true: the one that is attested
    const bool attested = !adapter->quoted && adapter->text == "true";
    out.where = AdapterBound{attested ? std::string() : section.text("adapter")};
    ++kinds;
  }
  if (section.truth("whole")) {
    out.where = WholeModel{};
    ++kinds;
  }
  out.heads = mask(section, "heads");
  out.experts = mask(section, "experts");
  section.end();
  if (kinds != 1)
    section.fail(section.node().line, section.path_of("profile"),
                 "needs exactly one of depth, layers, modules, adapter, whole");
  return out;
}

ClassPolicy read_class(Section section, const Policy& policy) {
  ClassPolicy out;
  out.clip_norm = section.number("clip_norm");
  out.noise_multiplier = section.number("noise_multiplier");
  out.most_occurrences = section.whole("most_occurrences", 1);
  out.sensitive = section.truth("sensitive");
  if (section.find("profile") != nullptr) {
    out.profile = read_profile(section.section("profile"));
  } else if (out.sensitive) {
    out.profile = sensitive_profile();
  } else {
    section.fail(section.node().line, section.path_of("profile"),
                 "is missing; only sensitive classes have a default");
  }
  if (section.find("amplified") != nullptr) {
    Section inner = section.section("amplified");
    Amplified amplified;
    amplified.rate = inner.number("rate");
    amplified.steps = inner.whole("steps", 1);
    amplified.delta = inner.number("delta");
    if (amplified.rate.units > Scaled::kUnit || amplified.delta.units >= Scaled::kUnit)
      inner.fail(inner.node().line, inner.path_of("rate"),
                 "and delta must be in (0, 1]; delta below 1");
    inner.end();
    out.amplified = amplified;
  }
  section.end();
  if (out.clip_norm < policy.clip_norm_floor)
    section.fail(section.node().line, section.path_of("clip_norm"),
                 "is below floors.clip_norm, so no descriptor could be admitted");
  if (out.noise_multiplier < policy.noise_multiplier_floor)
    section.fail(section.node().line, section.path_of("noise_multiplier"),
                 "is below floors.noise_multiplier");
  return out;
}

void read_keys(Section& root, Policy& policy) {
  for (const Yaml& item : root.list("keys").items) {
    Section section(item, root.file(), "keys");
    TrustedKey key{section.text("name"), section.public_key("public_key"),
                   section.texts("classes")};
    section.end();
    for (const std::string& name : key.classes) {
      if (policy.classes.contains(name)) continue;
      std::vector<std::string> known;
      for (const auto& [each, unused] : policy.classes) known.push_back(each);
      const auto meant = nearest(name, known);
      section.fail(item.line, "keys.classes",
                   fmt::format("names {}, which is not a class{}", excerpt(name),
                               meant ? fmt::format("; did you mean {}?", *meant) : ""));
    }
    for (const TrustedKey& other : policy.keys)
      if (other.name == key.name || other.key == key.key)
        section.fail(item.line, "keys", fmt::format("has {} twice", excerpt(key.name)));
    policy.keys.push_back(std::move(key));
  }
}

// A list of different byte strings in hexadecimal, sorted; nothing if there is no such key.
template <std::size_t N>
void read_hashes(Section& root, const char* key, const char* wanted,
                 std::vector<std::array<std::uint8_t, N>>& out) {
  if (root.find(key) == nullptr) return;
  for (const Yaml& item : root.list(key).items) {
    std::array<std::uint8_t, N> hash{};
    try {
      const Bytes bytes = from_hex(item.text);
      if (bytes.size() != hash.size()) malformed("hash", "length");
      std::copy(bytes.begin(), bytes.end(), hash.begin());
    } catch (const Error&) {
      root.fail(item.line, key, wanted);
    }
    out.push_back(hash);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

}  // namespace

Policy read_policy(std::string_view text, std::string_view name) {
  const Yaml tree = parse_yaml(text, name);
  Section root(tree, name, "");
  Policy policy;
  policy.corpus = root.text("corpus");
  policy.accountant = root.choice(
      "accountant", {CorpusAccountant::kRdp, CorpusAccountant::kMoments, CorpusAccountant::kPld});
  {
    Section floors = root.section("floors");
    policy.clip_norm_floor = floors.number("clip_norm");
    policy.noise_multiplier_floor = floors.number("noise_multiplier");
    floors.end();
  }
  policy.most_validity_seconds = std::uint64_t{86400} * root.whole("most_validity_days", 1);
  policy.epoch_seconds = root.whole("epoch_seconds", 1);
  policy.retention_epochs = root.whole("retention_epochs", 1);
  {
    Section noise = root.section("noise");
    policy.noise = noise.number("stddev");
    policy.clipping = noise.choice("clipping", {BlockClipping::kFlat, BlockClipping::kPerBlock});
    if (const Yaml* blocks = noise.find("blocks")) {
      if (blocks->kind != Yaml::Kind::kMap)
        noise.fail(blocks->line, noise.path_of("blocks"), "must be a mapping of modules to noise");
      for (const Yaml::Entry& entry : blocks->entries)
        policy.blocks.emplace(entry.key, noise.number_of(entry.value, "noise.blocks." + entry.key));
      if (policy.blocks.contains("default") || policy.blocks.contains(""))
        noise.fail(blocks->line, noise.path_of("blocks"), "must not name a module 'default'");
    }
    noise.end();
  }
  const Yaml& classes = root.at("classes");
  if (classes.kind != Yaml::Kind::kMap || classes.entries.empty())
    root.fail(classes.line, "classes", "must be a mapping with at least one class");
  for (const Yaml::Entry& entry : classes.entries) {
    if (entry.key.empty() || entry.key.size() > 64 ||
        entry.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-.") != std::string::npos)
      root.fail(entry.line, "classes", "must have names of 1 to 64 of a-z, 0-9, '_', '-' and '.'");
    policy.classes.emplace(entry.key,
                           read_class(Section(entry.value, name, "classes." + entry.key), policy));
  }
  read_keys(root, policy);
  if (root.find("authority") != nullptr) policy.authority = root.public_key("authority");
  read_hashes(root, "revoked", "must be a list of key ids, 32 hexadecimal digits each",
              policy.revoked);
  read_hashes(root, "accept_unbound",
              "must be a list of hashes of descriptors, 64 hexadecimal digits each",
              policy.accept_unbound);
  root.end();
  return policy;
}

}  // namespace discreet::admission
