#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"
#include "discreet/data/csv_rows.h"
#include "discreet/data/dataset.h"
#include "discreet/data/dataset_impl.h"

namespace discreet::data {
namespace {

constexpr const char* kOperator = "data";
constexpr const char* kEmpty =
    "is empty; if that stands for a missing value, list \"\" in data.missing";

// Turns the fields of a row into numbers.
class Columns {
 public:
  Columns(const CsvSchema& schema, const CsvRows& rows) : schema_(schema), header_(rows.header()) {
    std::set<std::string> seen;
    for (const std::string& name : header_)
      if (!seen.insert(name).second)
        invalid_config(kOperator, "{}: two columns are named {}", rows.source(), name);
    for (const auto& [name, column] : schema.numeric) rows.column(name);
    for (const auto& [name, column] : schema.categorical) rows.column(name);
    for (const auto& [name, buckets] : schema.hashed) rows.column(name);
    if (schema.needs_label) rows.column(schema.label.name);
    for (std::size_t c = 0; c < header_.size(); ++c) add(c, header_[c]);
    for (std::size_t k = 0; k < schema.label.classes.size(); ++k)
      classes_.emplace(schema.label.classes[k], static_cast<std::uint32_t>(k));
  }

  const std::vector<std::string>& feature_names() const { return names_; }

  // Appends one record; what was appended is taken back if it is bad.
  void append(const std::vector<std::string_view>& fields, Dataset& out) const {
    const std::size_t before = out.x.size();
    std::size_t column = 0;
    try {
      for (const Reader& reader : readers_) {
        column = reader.column;
        reader.append(fields[column], schema_.format.is_missing(fields[column]), out);
      }
    } catch (BadField& bad) {
      out.x.resize(before);
      if (out.label.size() > out.rows) out.label.resize(out.rows);
      if (out.target.size() > out.rows) out.target.resize(out.rows);
      bad.column = header_[column];
      throw;
    }
    ++out.rows;
  }

 private:
  struct Reader {
    std::size_t column;
    std::function<void(std::string_view text, bool is_missing, Dataset&)> append;
  };

  void add_label(std::size_t c) {
    if (schema_.label.classes.empty()) {
      const NumericColumn bounds{schema_.label.lower, schema_.label.upper};
      readers_.push_back({c, [bounds](std::string_view text, bool is_missing, Dataset& out) {
                            if (is_missing) throw BadField{"", "the label is missing"};
                            out.target.push_back(scaled(parse_number(text, kMayBeMissing), bounds));
                          }});
      return;
    }
    readers_.push_back({c, [this](std::string_view text, bool is_missing, Dataset& out) {
                          const auto at = classes_.find(std::string(text));
                          if (at == classes_.end()) refuse_class(text, is_missing);
                          out.label.push_back(at->second);
                        }});
  }

  [[noreturn]] void refuse_class(std::string_view text, bool is_missing) const {
    if (is_missing) throw BadField{"", "the label is missing"};
    const std::vector<std::string>& classes = schema_.label.classes;
    std::string remedy = "add it to data.classes";
    if (std::ranges::find(classes, trimmed(text)) != classes.end())
      remedy = "set data.trim: true to remove the spaces around it";
    else if (const auto meant = nearest(text, classes))
      remedy += fmt::format(", or map it: data.map: {{{}: {{\"{}\": \"{}\"}}}}", schema_.label.name,
                            text, *meant);
    throw BadField{"",
                   fmt::format("{} is not one of the declared classes; {}", excerpt(text), remedy)};
  }

  void add_hashed(std::size_t c, const std::string& name, std::uint64_t buckets) {
    for (std::uint64_t k = 0; k < buckets; ++k) names_.push_back(fmt::format("{}#{}", name, k));
    readers_.push_back({c, [buckets](std::string_view text, bool is_missing, Dataset& out) {
                          if (text.empty() && !is_missing) throw BadField{"", kEmpty};
                          const std::size_t first = out.x.size();
                          out.x.resize(first + buckets, 0.0f);
                          if (!is_missing) out.x[first + bucket_of(text) % buckets] = 1.0f;
                        }});
  }

  static std::uint64_t bucket_of(std::string_view word) {
    const Digest digest = sha256(bytes_of(word));
    std::uint64_t number = 0;
    for (std::size_t k = 0; k < 8; ++k) number = number << 8 | digest[k];
    return number;
  }

  void add(std::size_t c, const std::string& name) {
    if (name == schema_.label.name) return add_label(c);
    if (const auto hashed = schema_.hashed.find(name); hashed != schema_.hashed.end())
      return add_hashed(c, name, hashed->second);
    if (const auto numeric = schema_.numeric.find(name); numeric != schema_.numeric.end()) {
      names_.push_back(name);
      const NumericColumn bounds = numeric->second;
      readers_.push_back({c, [bounds](std::string_view text, bool is_missing, Dataset& out) {
                            out.x.push_back(
                                is_missing ? 0 : scaled(parse_number(text, kMayBeMissing), bounds));
                          }});
      return;
    }
    const auto categorical = schema_.categorical.find(name);
    if (categorical == schema_.categorical.end()) return;
    const CategoricalColumn& column = categorical->second;
    std::unordered_map<std::string, std::size_t> words;
    for (const std::string& word : column.vocabulary) {
      words.emplace(word, words.size());
      names_.push_back(fmt::format("{}={}", name, word));
    }
    if (column.other) names_.push_back(name + "=*");
    const std::size_t width = words.size() + (column.other ? 1 : 0);
    readers_.push_back(
        {c, [words, width, name, other = column.other](std::string_view text, bool is_missing,
                                                       Dataset& out) {
           const auto at = words.find(std::string(text));
           if (at == words.end() && !other && !is_missing) {
             if (text.empty()) throw BadField{"", kEmpty};
             throw BadField{
                 "", fmt::format("{} is not in the declared vocabulary; {}", excerpt(text),
                                 words.contains(std::string(trimmed(text)))
                                     ? std::string("set data.trim: true to remove the spaces "
                                                   "around it")
                                     : fmt::format("add it to data.categorical.{0}, add \"*\" "
                                                   "there for every other word, or list it in "
                                                   "data.missing",
                                                   name))};
           }
           const std::size_t hot = at != words.end() ? at->second : other ? width - 1 : width;
           for (std::size_t k = 0; k < width; ++k) out.x.push_back(k == hot ? 1.0f : 0.0f);
         }});
  }

  const CsvSchema& schema_;
  const std::vector<std::string>& header_;
  std::vector<Reader> readers_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> classes_;
};

void check_words(const std::vector<std::string>& words, const std::string& what) {
  const std::set<std::string> distinct(words.begin(), words.end());
  if (words.empty() || distinct.size() != words.size())
    invalid_config(kOperator, "{} must be a list of distinct words", what);
}

void check(const CsvSchema& schema) {
  for (const auto& [name, column] : schema.numeric) check_bounds(column, "column " + name);
  for (const auto& [name, column] : schema.categorical) {
    check_words(column.vocabulary, "the vocabulary of column " + name);
    if (schema.numeric.contains(name))
      invalid_config(kOperator, "column {} is declared both numeric and categorical", name);
  }
  const std::string& label = schema.label.name;
  if (label.empty()) invalid_config(kOperator, "no label column is declared");
  if (schema.numeric.contains(label) || schema.categorical.contains(label))
    invalid_config(kOperator, "column {} is declared both as label and as feature", label);
  if (schema.label.classes.empty())
    check_bounds({schema.label.lower, schema.label.upper}, "label " + label);
  else
    check_words(schema.label.classes, "label " + label);
  std::uint64_t buckets = 0;
  for (const auto& [name, count] : schema.hashed) {
    if (schema.numeric.contains(name) || schema.categorical.contains(name) || name == label)
      invalid_config(kOperator, "hashed column {} is also declared elsewhere", name);
    if (count == 0 || (buckets += count) > kMostFeatures)
      invalid_config(kOperator, "hashed columns must have 1 to {} features together",
                     kMostFeatures);
  }
  if (schema.numeric.empty() && schema.categorical.empty() && schema.hashed.empty())
    invalid_config(kOperator, "no feature column is declared");
}

}  // namespace

namespace {

Dataset read_rows(CsvRows rows, const CsvSchema& schema, BadRow on_bad_row) {
  const Columns columns(schema, rows);
  Dataset out;
  out.feature_names = columns.feature_names();
  out.features = out.feature_names.size();
  out.class_names = schema.label.classes;
  out.classes = out.class_names.size();
  out.skipped = rows.for_each(on_bad_row, [&](const std::vector<std::string_view>& fields) {
    columns.append(fields, out);
    if (!rows.line().empty()) out.anchors.push_back(sha256(bytes_of(rows.line())));
  });
  out.digest = digest_of(out);
  return out;
}

}  // namespace

Dataset read_csv(const std::filesystem::path& path, const CsvSchema& schema, BadRow on_bad_row) {
  check(schema);
  return read_rows(CsvRows(path, schema.format), schema, on_bad_row);
}

Dataset read_table(const Table& table, const CsvSchema& schema, BadRow on_bad_row) {
  check(schema);
  return read_rows(CsvRows(table, schema.format), schema, on_bad_row);
}

}  // namespace discreet::data
