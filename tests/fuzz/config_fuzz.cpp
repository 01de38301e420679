// Properties of discreet/mechanism/config_read. Whatever the bytes: load_config throws
// kInvalidDpConfig, in one line that names the file; or the configuration it gives is written as a
// file that reads back to the same hash, and resolving it again changes nothing.
#include <string>

#include "discreet/base/error.h"
#include "discreet/config/config_read.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;

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
