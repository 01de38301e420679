// Properties of discreet/config/config_read. Whatever the bytes: load_config throws
// kInvalidDpConfig, in one line that names the file; or the configuration it gives is written as a
// file that reads back to the same hash, and resolving it again changes nothing.
#include <string>

#include "discreet/base/error.h"
#include "discreet/config/config_preset.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_table.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;

namespace {

constexpr std::string_view kSmall = R"(security:
  differential_privacy:
    target_epsilon: 3
    target_steps: 100
    declared_size: 60000
    effective_batch_size: 256
)";

std::vector<std::string> examples(const Key<Config>& key) {
  switch (key.type) {
    case KeyType::kBool: return {"true", "false"};
    case KeyType::kInteger: return {"1", "1e6"};
    case KeyType::kNumber: {
      std::vector<std::string> out = key.choices;
      out.insert(out.end(), {"0.5", "2"});
      return out;
    }
    case KeyType::kChoice: return key.choices;
    case KeyType::kText: return {key.digits > 0 ? std::string(key.digits, 'a') : "words"};
    case KeyType::kTextList: return {"[a, b]"};
    case KeyType::kIntegerList: return {"[1, 64]"};
    case KeyType::kBounds: return {"[-1, 1]"};
    case KeyType::kNumberMap: return {"{a: 1, b.c: 0.5}"};
    case KeyType::kBoundsMap: return {"{a: [0, 1]}"};
    case KeyType::kWordsMap: return {"{a: [b, c]}"};
    case KeyType::kSpellingsMap: return {"{a: {b: c}}"};
    case KeyType::kOverrideMap: return {"{a: {clip_norm: 1, sigma_multiplier: 2, public: false}}"};
  }
  return {};
}

// "a.b" and "1": "a: {b: 1}".
std::string nested(std::string_view path, const std::string& value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return std::string(path) + ": " + value;
  return std::string(path.substr(0, dot)) + ": {" + nested(path.substr(dot + 1), value) + "}";
}

}  // namespace

// Every key with each of its words, and every preset, short and written out.
std::vector<Bytes> fuzz::seeds() {
  std::vector<Bytes> out;
  const auto add = [&out](std::string_view text) { out.emplace_back(text.begin(), text.end()); };
  for (const Key<Config>& key : config_keys()) {
    const std::string_view path = key.path;
    const bool privacy = path.starts_with(kPrivacySection);
    for (const std::string& value : examples(key)) {
      std::string text(kSmall);
      text += privacy ? "    " + nested(path.substr(kPrivacySection.size()), value)
                      : nested(path, value);
      add(text + "\n");
    }
  }
  for (const std::string_view preset : preset_names()) {
    const std::string text = std::string(kSmall) + "    extends: " + std::string(preset) + "\n";
    add(text);
    try {
      add(write_yaml(load_config(text, "seed").config));
    } catch (const Error&) {  // a preset that needs a key more
    }
  }
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  LoadedConfig loaded;
  try {
    loaded = load_config(text, "fuzz");
  } catch (const Error& error) {
    fuzz::require(error.code() == ErrorCode::kInvalidDpConfig, "another code was thrown");
    fuzz::require(error.sentence().starts_with("fuzz") || error.sentence().starts_with("preset "),
                  "the sentence does not name the file");
    fuzz::require(error.sentence().find('\n') == std::string::npos, "the sentence has two lines");
    return 0;
  }
  const std::string written = write_yaml(loaded.config);
  const LoadedConfig again = load_config(written, "written");
  fuzz::require(config_hash(again.config) == config_hash(loaded.config),
                "a written configuration has another hash");
  fuzz::require(resolve(loaded.config.privacy).config == loaded.config.privacy,
                "resolving twice changes something");
  return 0;
}
