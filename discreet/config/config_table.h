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

// The single table of keys. Reading, defaults, ranges, the JSON schema, the commented starter, the
// canonical bytes and docs/reference/configuration.md are all derived from it: a new key or section
// is a new row (and a member to hold it).

// The section of the mechanism in a configuration file, with the final dot.
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
std::span<const std::string_view> spellings(BadRow);
std::span<const std::string_view> spellings(ModelKind);
std::span<const std::string_view> spellings(Activation);
std::span<const std::string_view> spellings(FeatureMapKind);
std::span<const std::string_view> spellings(OptimizerKind);
std::span<const std::string_view> spellings(RateSchedule);
std::span<const std::string_view> spellings(Injection);

// The spelling of an enumerator, such as "per_sample" for ClipStrategy::kPerSample; "?" for a value
// that is not an enumerator.
template <class Enum>
std::string_view spelling(Enum value) {
  const auto all = spellings(value);
  const auto index = static_cast<std::size_t>(value);
  return index < all.size() ? all[index] : "?";
}

// ---------------------------------------------------------------- keys

enum class KeyType : std::uint8_t {
  kBool,          // true or false
  kInteger,       // an integer in 0 ... 2^64-1
  kNumber,        // a finite binary64; with choices, also one of these words
  kChoice,        // one of the choices
  kText,          // any text; with `digits`, hexadecimal digits
  kTextList,      // a list of names
  kIntegerList,   // a list of integers, each in the range
  kBounds,        // [lower, upper], finite, lower < upper; empty: not given
  kNumberMap,     // names to numbers
  kBoundsMap,     // names to [lower, upper]
  kWordsMap,      // names to lists of distinct words
  kSpellingsMap,  // names to mappings of words to words
  kOverrideMap,   // names to {clip_norm, sigma_multiplier, public}
};

// The value of a key; monostate is null, "not given".
using KeyValue =
    std::variant<std::monostate, bool, std::uint64_t, double, std::string, std::vector<std::string>,
                 std::vector<std::uint64_t>, std::vector<double>, NumberMap, BoundsMap, WordsMap,
                 SpellingsMap, OverrideMap>;

// The admissible numbers; for a list or map, of each entry.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // least itself is excluded
  bool below = false;  // most itself is excluded
  bool holds(double x) const noexcept {
    return (above ? x > least : x >= least) && (below ? x < most : x <= most);
  }
};

// One key of a mapping that fills a Target.
template <class Target>
struct Key {
  std::string path;         // dotted, from the root of the file
  std::string description;  // one sentence without the final full stop
  KeyType type = KeyType::kBool;
  bool nullable = false;
  Range range = {};
  std::vector<std::string> choices = {};
  std::size_t digits = 0;       // kText: number of hexadecimal digits; 0: any text
  std::string alias_of = {};    // this is an alias of that key, which the canonical form uses
  bool is_position = false;     // the position of a run, not a setting: not in the canonical form
  std::string default_if = {};  // in words, if the default depends on other keys
  // Added after the first hashes were written: at its default it is not in the canonical form, so
  // that earlier configurations keep their hash.
  bool is_later = false;
  bool may_hold_empty = false;  // kTextList: a word may be empty
  std::function<KeyValue(const Target&)> get = {};
  std::function<void(Target&, const KeyValue&)> set = {};
};

// Every key of a configuration file, in file order. `extends` has no member: it names the preset on
// which the file builds (config_preset.h).
const std::vector<Key<Config>>& config_keys();
// The keys of one entry of `modules` and `groups`.
const std::vector<Key<Override>>& override_keys();

// Empty if the value is admissible; otherwise the rest of a sentence that starts with the key: "is
// 1.5; it must lie in (0, 1)". `value` has the type of the key.
template <class Target>
std::string complaint(const Key<Target>& key, const KeyValue& value);

// What the key accepts: "a number in (0, 1)", "one of pld, moments, rdp, f_dp, gdp".
template <class Target>
std::string expectation(const Key<Target>& key);

// Keys as the tree of their path components, in order of first appearance.
template <class Target>
struct KeyTree {
  std::string name;                  // one component; empty at the root
  const Key<Target>* key = nullptr;  // for a leaf
  std::vector<KeyTree> children = {};
  const KeyTree* child(std::string_view component) const;
};
template <class Target>
KeyTree<Target> tree_of(const std::vector<Key<Target>>& keys);

// A number as written in configuration files: the shortest digits that read back to the same
// binary64, with a decimal point, so that YAML 1.1 and 1.2 both read it as a number ("1.0e-05").
std::string write_number(double number);

}  // namespace discreet
