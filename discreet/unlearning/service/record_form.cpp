#include "discreet/unlearning/service/record_form.h"

#include <fmt/core.h>

#include <cmath>
#include <set>

#include "discreet/unlearning/records_impl.h"
#include "discreet/unlearning/saved_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kType = "unlearning/form/1";

cbor::Value encoded(const std::vector<std::string>& words) {
  return cbor::array({words.begin(), words.end()});
}

cbor::Value encoded(const data::CsvFormat& format) {
  std::vector<cbor::Entry> map;
  for (const auto& [column, spellings] : format.map) {
    std::vector<cbor::Entry> words;
    for (const auto& [text, meant] : spellings) words.push_back({text, meant});
    map.push_back({column, cbor::map(std::move(words))});
  }
  return cbor::map({{"separator", std::string(1, format.separator)},
                    {"trim", format.trim},
                    {"header", encoded(format.header)},
                    {"map", cbor::map(std::move(map))},
                    {"missing", encoded(format.missing)}});
}

cbor::Value encoded(const data::CsvSchema& columns) {
  std::vector<cbor::Entry> numeric, categorical, hashed;
  for (const auto& [name, bounds] : columns.numeric)
    numeric.push_back({name, cbor::array({bounds.lower, bounds.upper})});
  for (const auto& [name, column] : columns.categorical)
    categorical.push_back({name, cbor::array({encoded(column.vocabulary), column.other})});
  for (const auto& [name, buckets] : columns.hashed) hashed.push_back({name, buckets});
  const data::LabelColumn& label = columns.label;
  return cbor::map({{"numeric", cbor::map(std::move(numeric))},
                    {"categorical", cbor::map(std::move(categorical))},
                    {"hashed", cbor::map(std::move(hashed))},
                    {"label", label.name},
                    {"classes", encoded(label.classes)},
                    {"lower", label.lower},
                    {"upper", label.upper},
                    {"format", encoded(columns.format)}});
}

std::vector<std::string> words(const cbor::Value& list) {
  std::vector<std::string> out;
  for (const cbor::Value& word : list.as_array()) out.emplace_back(word.as_text());
  return out;
}

data::CsvFormat decoded_format(const cbor::Value& s) {
  data::CsvFormat format;
  const std::string_view separator = s.at("separator").as_text();
  if (separator.size() != 1) malformed_state("the separator must be one character");
  format.separator = separator[0];
  format.trim = s.at("trim").as_bool();
  format.header = words(s.at("header"));
  for (const auto& [column, spellings] : s.at("map").as_map())
    for (const auto& [text, meant] : spellings.as_map())
      format.map[std::string(column.as_text())][std::string(text.as_text())] = meant.as_text();
  format.missing = words(s.at("missing"));
  return format;
}

data::CsvSchema decoded(const cbor::Value& s) {
  data::CsvSchema columns;
  const auto pair_of = [](const cbor::Value& value) {
    const auto& items = value.as_array();
    if (items.size() != 2) malformed_state("a column must be a pair");
    return std::pair(items[0], items[1]);
  };
  for (const auto& [name, value] : s.at("numeric").as_map()) {
    const auto [lower, upper] = pair_of(value);
    columns.numeric[std::string(name.as_text())] = {lower.as_float(), upper.as_float()};
  }
  for (const auto& [name, value] : s.at("categorical").as_map()) {
    const auto [vocabulary, other] = pair_of(value);
    columns.categorical[std::string(name.as_text())] = {words(vocabulary), other.as_bool()};
  }
  columns.label = {std::string(s.at("label").as_text()), words(s.at("classes")),
                   s.at("lower").as_float(), s.at("upper").as_float()};
  for (const auto& [name, buckets] : s.at("hashed").as_map())
    columns.hashed[std::string(name.as_text())] = buckets.as_unsigned();
  columns.format = decoded_format(s.at("format"));
  return columns;
}

}  // namespace

void require_sound(const RecordForm& form) {
  if (!form.columns) return;
  const data::LabelColumn& label = form.columns->label;
  if (!label.classes.empty() && label.classes.size() != 2)
    invalid_input("unlearn",
                  "the label has {} classes, but a model with deletions separates two; keep two in "
                  "data.classes",
                  label.classes.size());
  const std::vector<std::string> names = feature_names(*form.columns);
  if (names.empty()) invalid_input("unlearn", "no feature column is declared; declare one");
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second)
      invalid_input("unlearn", "two features are named {}; rename a column", name);
}

std::vector<std::string> feature_names(const data::CsvSchema& columns) {
  std::vector<std::string> names;
  for (const auto& [name, bounds] : columns.numeric) names.push_back(name);
  for (const auto& [name, column] : columns.categorical) {
    for (const std::string& word : column.vocabulary) names.push_back(name + "=" + word);
    if (column.other) names.push_back(name + "=*");
  }
  for (const auto& [name, buckets] : columns.hashed)
    for (std::uint64_t k = 0; k < buckets; ++k) names.push_back(fmt::format("{}#{}", name, k));
  return names;
}

std::vector<double> mapped(const RecordForm& form, std::span<const double> x, double R) {
  if (form.is_plain()) return {x.begin(), x.end()};
  std::vector<double> z = form.columns ? std::vector<double>(x.begin(), x.end()) : within(x, R);
  double norm = std::sqrt(2.0), factor = 1;
  if (form.columns) {
    const std::size_t k = form.columns->numeric.size() + form.columns->categorical.size();
    norm = std::sqrt(static_cast<double>(k + (form.intercept ? 1 : 0)));
    factor = R;
  }
  if (form.intercept) z.push_back(form.columns ? 1 : R);
  for (double& v : z) v = v * factor / norm;
  return z;
}

std::string class_of(const RecordForm& form, double score) {
  if (!form.columns || form.columns->label.classes.empty()) return "";
  return form.columns->label.classes[score > 0 ? 1 : 0];
}

double number_of(const RecordForm& form, double score, double Y) {
  if (!form.columns) return score;
  const data::LabelColumn& label = form.columns->label;
  return label.lower + (score / Y + 1) / 2 * (label.upper - label.lower);
}

Bytes encode(const RecordForm& form) {
  return cbor::encode(
      cbor::map({{"type", kType},
                 {"intercept", form.intercept},
                 {"columns", form.columns ? encoded(*form.columns) : cbor::Value()}}));
}

RecordForm decode_record_form(ByteView bytes) {
  return restored(bytes, kType, [](const cbor::Value& s) {
    RecordForm form;
    form.intercept = s.at("intercept").as_bool();
    if (const cbor::Value& columns = s.at("columns"); !columns.is_null()) {
      form.columns = decoded(columns);
    }
    require_sound(form);
    return form;
  });
}

}  // namespace discreet::unlearning
