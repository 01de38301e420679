#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "discreet/config/config.h"

namespace discreet {

// The one table of keys. Reading, defaults, ranges, the JSON schema, the commented starter, the
// canonical bytes and docs/configuration.md all come from it: a new key, or a new section, is a new
// row (and a member to hold it).

// The section of the mechanism in a configuration file, with the dot.
inline constexpr std::string_view kPrivacySection = "security.differential_privacy.";

// ---------------------------------------------------------------- spellings of enumerators

// In the order of the enumerators.
std::span<const std::string_view> spellings(AccountantKind);
std::span<const std::string_view> spellings(Subsampling);
std::span<const std::string_view> spellings(SamplingMode);
std::span<const std::string_view> spellings(Granularity);
std::span<const std::string_view> spellings(ClipStrategy);
std::span<const std::string_view> spellings(NoiseFamily);
std::span<const std::string_view> spellings(Compression);
std::span<const std::string_view> spellings(ScheduleMode);
std::span<const std::string_view> spellings(AdaptiveAccounting);
std::span<const std::string_view> spellings(AllocationMode);
std::span<const std::string_view> spellings(ParallelismType);
std::span<const std::string_view> spellings(TrainingPhase);
std::span<const std::string_view> spellings(NonfinitePolicy);
std::span<const std::string_view> spellings(MetricsRelease);
std::span<const std::string_view> spellings(ProjectionPolicy);
std::span<const std::string_view> spellings(ComputeDtype);
std::span<const std::string_view> spellings(accounting::Adjacency);
std::span<const std::string_view> spellings(DataFormat);
std::span<const std::string_view> spellings(ModelKind);
std::span<const std::string_view> spellings(Activation);
std::span<const std::string_view> spellings(FeatureMapKind);
std::span<const std::string_view> spellings(OptimizerKind);
std::span<const std::string_view> spellings(RateSchedule);
std::span<const std::string_view> spellings(Injection);

// "per_sample" of ClipStrategy::kPerSample and so on; "?" for a number that is no enumerator.
template <class Enum>
std::string_view spelling(Enum value) {
  const auto all = spellings(value);
  const auto index = static_cast<std::size_t>(value);
  return index < all.size() ? all[index] : "?";
}

// ---------------------------------------------------------------- keys

enum class KeyType : std::uint8_t {
  kBool,         // true or false
  kInteger,      // a whole number, 0 ... 2^64-1
  kNumber,       // a finite binary64; with choices also one of these words
  kChoice,       // one of the choices
  kText,         // any text; with `digits` hexadecimal digits
  kTextList,     // a list of names
  kIntegerList,  // a list of whole numbers, each in the range
  kBounds,       // [lower, upper], finite, lower < upper; empty: not given
  kNumberMap,    // names to numbers
  kBoundsMap,    // names to [lower, upper]
  kWordsMap,     // names to lists of different words
  kOverrideMap,  // names to {clip_norm, sigma_multiplier, public}
};

// What a key holds; monostate is null, "not given".
using KeyValue = std::variant<std::monostate, bool, std::uint64_t, double, std::string,
                              std::vector<std::string>, std::vector<std::uint64_t>,
                              std::vector<double>, NumberMap, BoundsMap, WordsMap, OverrideMap>;

// Admissible numbers, of a list or map: of each entry.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // least itself is not admissible
  bool below = false;  // most itself is not admissible
  bool holds(double x) const noexcept {
    return (above ? x > least : x >= least) && (below ? x < most : x <= most);
  }
};

// One key of a mapping that fills a Target.
template <class Target>
struct Key {
  std::string path;         // dotted, from the root of the file
  std::string description;  // one sentence without its full stop
  KeyType type = KeyType::kBool;
  bool nullable = false;
  Range range = {};
  std::vector<std::string> choices = {};
  std::size_t digits = 0;     // kText: number of hexadecimal digits; 0: any text
  std::string alias_of = {};  // another spelling of that key; the canonical form has only that one
  bool is_position = false;   // where a run is, no setting: not in the canonical form
  std::string default_if = {};  // when the default follows from other keys, in words
  std::function<KeyValue(const Target&)> get = {};
  std::function<void(Target&, const KeyValue&)> set = {};
};

// Every key of a configuration file, in the order in which it is written. `extends` has no member:
// it names the preset on which the rest of the file builds (config_preset.h).
const std::vector<Key<Config>>& config_keys();
// The keys of one entry of `modules` and `groups`.
const std::vector<Key<Override>>& override_keys();

// Nothing if the value is admissible, else the rest of a sentence that begins with the key:
// "is 1.5; it must lie in (0, 1)". `value` as the key's type holds it.
template <class Target>
std::string complaint(const Key<Target>& key, const KeyValue& value);

// "a number in (0, 1)", "one of pld, moments, rdp, f_dp, gdp": what the key takes.
template <class Target>
std::string expectation(const Key<Target>& key);

// Keys as the tree of their path components, in order of first appearance.
template <class Target>
struct KeyTree {
  std::string name;                  // one component; empty at the root
  const Key<Target>* key = nullptr;  // of a leaf
  std::vector<KeyTree> children = {};
  const KeyTree* child(std::string_view component) const;
};
template <class Target>
KeyTree<Target> tree_of(const std::vector<Key<Target>>& keys);

// A number as configuration files write it: shortest digits that read back to the same binary64,
// with a point, so that readers of YAML 1.1 and 1.2 agree that it is a number ("1.0e-05").
std::string write_number(double number);

}  // namespace discreet
