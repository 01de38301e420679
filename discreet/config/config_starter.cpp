#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/config/config_document.h"
#include "discreet/config/config_text_impl.h"

namespace discreet {
namespace {

constexpr std::size_t kColumns = 100;

// "key: [a, b, c]", in as many lines as it takes.
std::string list(std::string_view key, const std::vector<std::string>& words) {
  std::string out, line = fmt::format("  {}: [", key);
  const std::string indent(line.size(), ' ');
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = yaml_text(words[i]) + (i + 1 < words.size() ? "," : "]");
    if (line.size() + 1 + word.size() > kColumns && line != indent) {
      out += line + '\n';
      line = indent;
    }
    line += (line.ends_with('[') || line == indent ? "" : " ") + word;
  }
  return out + line + '\n';
}

std::string key(std::string_view name, const KeyValue& value) {
  return fmt::format("  {}: {}\n", name, yaml_text(value));
}

std::string label_keys(const CsvStarter& about) {
  std::string out = key("label", about.label);
  if (about.classes.empty()) return out + key("label_bounds", about.label_bounds);
  return out + list("classes", about.classes);
}

std::string columns_keys(const CsvStarter& about) {
  std::string out;
  if (!about.numeric.empty())
    out += yaml_comment(2,
                        "Numbers, whose ranges are released privately within the budget. A range "
                        "that you know is better: remove the column here and write numeric: "
                        "{NAME: [LOWER, UPPER]}.") +
           list("private_bounds", about.numeric);
  if (!about.categorical.empty())
    out +=
        yaml_comment(2,
                     "Words, which a public hash maps to features, so that nobody needs to know "
                     "them. Words that are public knowledge are better: remove the column here "
                     "and write categorical: {NAME: [WORD, WORD, \"*\"]}; \"*\" stands for every "
                     "other word.") +
        list("hashed", about.categorical);
  return out;
}

std::string data_section(const CsvStarter& about) {
  std::string out = "data:\n  format: csv\n" + key("train", about.train);
  if (about.test) out += key("test", *about.test);
  if (!about.test) out += "  holdout: 0.1              # of the records, to test the model\n";
  if (about.separator != ",") out += key("separator", about.separator);
  if (!about.header.empty()) out += list("header", about.header);
  out += "  trim: true                # remove spaces around fields\n";
  out += list("missing", about.missing);
  out += label_keys(about);
  if (!about.map.empty())
    out += "  # Spellings in the test file, whose records have no guarantee.\n" +
           key("map", about.map);
  return out + columns_keys(about);
}

// A power of ten well below one over the number of records, and 1e-5 at most.
double delta_for(std::uint64_t records) {
  return std::pow(10, std::min(std::floor(std::log10(0.1 / static_cast<double>(records))), -5.0));
}

std::string privacy_section(const CsvStarter& about) {
  const std::uint64_t records = about.records.value_or(kPlaceholderRecords);
  return fmt::format(
      "security:\n  differential_privacy:\n"
      "    # train chooses noise, batch, steps and rate from these three.\n"
      "    target_epsilon: 3.0       # the budget: smaller is more private and less accurate\n"
      "    target_delta: {:.0e}       # well below 1 / declared_size\n"
      "    # {}A public number of records: at least as many as there may be, never counted.\n"
      "    declared_size: {}\n",
      delta_for(records), about.records ? "" : "PLACEHOLDER, to be replaced. ", records);
}

}  // namespace

std::string csv_starter(const CsvStarter& about) {
  return yaml_comment(
             0,
             "A configuration of discreet for a CSV file. It contains names, types and "
             "what you said; no value of a training record. Check it with: discreet check FILE. "
             "All keys: discreet init --all.") +
         data_section(about) +
         fmt::format("model:\n  kind: {}\n", about.classes.empty() ? "linear" : "softmax") +
         privacy_section(about);
}

std::string config_starter(std::optional<std::string_view> name) {
  const Preset* preset = find_preset(name);
  std::string out =
      yaml_comment(0,
                   "A configuration of discreet. It trains on the embedded handwritten digits. For "
                   "a file of yours: discreet init FILE --data people.csv --label COLUMN. All "
                   "keys: discreet init --all. Check this file with: discreet check FILE") +
      "data:\n  format: digits            # or csv, idx, npy\n"
      "model:\n  kind: softmax             # or linear for a number, mlp with hidden: [64]\n"
      "  features: scattering      # of images; for tables: none\n"
      "optimizer:\n  kind: sgd                 # or adam\n  rate: 4.0\n"
      "security:\n  differential_privacy:\n";
  if (preset != nullptr)
    out += yaml_comment(4, fmt::format("{}.", preset->summary)) +
           fmt::format("    extends: {}\n", preset->name);
  const auto put = [&](const char* path, const char* value, const char* about) {
    const bool is_set = preset != nullptr && std::ranges::any_of(preset->keys, [&](const auto& k) {
                          return k.path == path;
                        });
    if (!is_set) out += fmt::format("    {:<25} # {}\n", fmt::format("{}: {}", path, value), about);
  };
  put("target_epsilon", "8.0", "the budget: smaller is more private and less accurate");
  put("target_delta", "1.0e-05", "well below 1 / declared_size");
  put("declared_size", "1437", "the number of training records, declared and public");
  put("effective_batch_size", "256", "expected number of records of a step");
  put("target_steps", "180", "planned number of steps");
  if (preset == nullptr) {
    put("mode", "meet_exactly_at_target_steps", "finds the noise that spends the budget");
    out += "    clipping: {norm: 0.5, ghost: true}\n";
  } else {
    put("noise_multiplier", "2.0", "noise / clip norm; 'discreet plan' finds it for a budget");
  }
  return out;
}

}  // namespace discreet
