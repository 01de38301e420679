#pragma once

#include <algorithm>
#include <string>

#include "discreet/base/error_testing.h"
#include "discreet/config/config_read.h"

namespace discreet {

// A file with `keys` in its privacy section, indented by four, below the keys that every run needs.
inline std::string file_with(const std::string& keys) {
  std::string text = "security:\n  differential_privacy:\n";
  for (const char* needed :
       {"target_epsilon: 3", "declared_size: 60000", "effective_batch_size: 600"}) {
    const std::string key = std::string(needed).substr(0, std::string(needed).find(':'));
    if (keys.find(key) == std::string::npos) text += "    " + std::string(needed) + "\n";
  }
  for (std::size_t at = 0; at < keys.size();) {
    const std::size_t end = std::min(keys.find('\n', at), keys.size());
    text += "    " + keys.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

inline LoadedConfig load(const std::string& keys) { return load_config(file_with(keys), "f"); }
inline DpConfig privacy_of(const std::string& keys) { return load(keys).config.privacy; }

inline std::string refusal_of(const std::string& keys) {
  return refusal([&] { load(keys); });
}
inline std::string refusal_of_file(const std::string& text) {
  return refusal([&] { load_config(text, "f"); });
}

}  // namespace discreet
