#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>

#include "discreet/base/error.h"
#include "discreet/base/nearest.h"
#include "discreet/base/utf8.h"
#include "discreet/training/dataset.h"
#include "discreet/training/dataset_impl.h"
#include "discreet/training/input.h"

namespace discreet::training {
namespace {

[[noreturn]] void refuse_schema(std::string sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, "data", std::move(sentence));
}

// A row that cannot be read, and why; caught where the policy is known.
struct BadField {
  std::string column;
  std::string what;
};

// Splits a line into fields; quoted ones are unescaped into `storage`.
void split(std::string_view line, char separator, std::vector<std::string_view>& fields,
           std::vector<std::string>& storage) {
  fields.clear();
  storage.clear();
  storage.reserve(line.size() / 2 + 1);  // so that views into it stay valid
  std::size_t at = 0;
  while (true) {
    if (at < line.size() && line[at] == '"') {
      std::string text;
      ++at;
      while (true) {
        const std::size_t quote = line.find('"', at);
        if (quote == std::string_view::npos)
          throw BadField{"", "a quote is not closed on its line"};
        text += line.substr(at, quote - at);
        at = quote + 1;
        if (at >= line.size() || line[at] != '"') break;
        text += '"';
        ++at;
      }
      if (at < line.size() && line[at] != separator)
        throw BadField{"", "text follows a closing quote"};
      fields.push_back(storage.emplace_back(std::move(text)));
    } else {
      const std::size_t end = std::min(line.find(separator, at), line.size());
      fields.push_back(line.substr(at, end - at));
      at = end;
    }
    if (at >= line.size()) return;
    ++at;
    if (at == line.size()) {
      fields.emplace_back();
      return;
    }
  }
}

double parse_number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw BadField{"", text.empty() ? "is empty"
                                    : fmt::format("'{}' is no finite number", text.substr(0, 40))};
  return value;
}

// Turns the fields of a row into numbers.
class Columns {
 public:
  Columns(const CsvSchema& schema, const std::vector<std::string>& header, const std::string& file)
      : schema_(schema), header_(header) {
    std::set<std::string> seen;
    for (const std::string& name : header)
      if (!seen.insert(name).second)
        refuse_schema(fmt::format("{}: two columns are called {}", file, name));
    const auto require = [&](const std::string& name) {
      if (seen.contains(name)) return;
      const auto meant = nearest(name, header);
      refuse_schema(fmt::format("{} has no column {}{}", file, name,
                                meant ? fmt::format("; did you mean {}?", *meant) : ""));
    };
    for (const auto& [name, column] : schema.numeric) require(name);
    for (const auto& [name, column] : schema.categorical) require(name);
    require(schema.label.name);
    for (std::size_t c = 0; c < header.size(); ++c) add(c, header[c]);
    for (std::size_t k = 0; k < schema.label.classes.size(); ++k)
      classes_.emplace(schema.label.classes[k], static_cast<std::uint32_t>(k));
  }

  const std::vector<std::string>& feature_names() const { return names_; }

  // Appends one record; what was appended is taken back if it is bad.
  void append(const std::vector<std::string_view>& fields, Dataset& out) const {
    if (fields.size() != header_.size())
      throw BadField{
          "", fmt::format("{} fields where the header has {}", fields.size(), header_.size())};
    const std::size_t before = out.x.size();
    std::size_t column = 0;
    try {
      for (const Reader& reader : readers_) {
        column = reader.column;
        reader.append(fields[column], out);
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
    std::function<void(std::string_view, Dataset&)> append;
  };

  void add(std::size_t c, const std::string& name) {
    if (name == schema_.label.name) {
      if (schema_.label.classes.empty()) {
        const NumericColumn bounds{schema_.label.lower, schema_.label.upper};
        readers_.push_back({c, [bounds](std::string_view text, Dataset& out) {
                              out.target.push_back(scaled(parse_number(text), bounds));
                            }});
      } else {
        readers_.push_back(
            {c, [this](std::string_view text, Dataset& out) {
               const auto at = classes_.find(std::string(text));
               if (at == classes_.end())
                 throw BadField{
                     "", fmt::format("'{}' is none of the declared classes", text.substr(0, 40))};
               out.label.push_back(at->second);
             }});
      }
      return;
    }
    if (const auto numeric = schema_.numeric.find(name); numeric != schema_.numeric.end()) {
      names_.push_back(name);
      const NumericColumn bounds = numeric->second;
      readers_.push_back({c, [bounds](std::string_view text, Dataset& out) {
                            out.x.push_back(scaled(parse_number(text), bounds));
                          }});
      return;
    }
    const auto categorical = schema_.categorical.find(name);
    if (categorical == schema_.categorical.end()) return;
    const CategoricalColumn& column = categorical->second;
    std::unordered_map<std::string, std::size_t> words;
    for (const std::string& word : column.vocabulary) {
      words.emplace(word, words.size());
      names_.push_back(name + "=" + word);
    }
    if (column.other) names_.push_back(name + "=*");
    const std::size_t width = words.size() + (column.other ? 1 : 0);
    readers_.push_back(
        {c, [words, width, other = column.other](std::string_view text, Dataset& out) {
           const auto at = words.find(std::string(text));
           if (at == words.end() && !other)
             throw BadField{"", text.empty() ? "is empty"
                                             : fmt::format("'{}' is not in the declared vocabulary",
                                                           text.substr(0, 40))};
           const std::size_t hot = at == words.end() ? width - 1 : at->second;
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
    refuse_schema(fmt::format("{} needs a list of different words", what));
}

void check(const CsvSchema& schema) {
  for (const auto& [name, column] : schema.numeric) check_bounds(column, "column " + name);
  for (const auto& [name, column] : schema.categorical) {
    check_words(column.vocabulary, "the vocabulary of column " + name);
    if (schema.numeric.contains(name))
      refuse_schema(fmt::format("column {} is declared numeric and categorical", name));
  }
  const std::string& label = schema.label.name;
  if (label.empty()) refuse_schema("no label column is declared");
  if (schema.numeric.contains(label) || schema.categorical.contains(label))
    refuse_schema(fmt::format("column {} is declared as label and as feature", label));
  if (schema.label.classes.empty())
    check_bounds({schema.label.lower, schema.label.upper}, "label " + label);
  else
    check_words(schema.label.classes, "label " + label);
  if (schema.numeric.empty() && schema.categorical.empty())
    refuse_schema("no feature column is declared");
}

}  // namespace

Dataset read_csv(const std::filesystem::path& path, const CsvSchema& schema, BadRow on_bad_row) {
  check(schema);
  Input input(path);
  const std::string file = path.string();
  std::string_view line;
  std::vector<std::string_view> fields;
  std::vector<std::string> storage;
  const auto bad_line = [&](const BadField& bad) -> Error {
    return {
        ErrorCode::kMalformed, "data",
        fmt::format("{}:{}: {}{}", file, input.line_number(),
                    bad.column.empty() ? "" : fmt::format("column {}: ", bad.column), bad.what)};
  };
  if (!input.line(line))
    throw Error(ErrorCode::kMalformed, "data",
                fmt::format("{} is empty; it needs a header line", file));
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  try {
    split(line, schema.separator, fields, storage);
  } catch (const BadField& bad) {
    throw bad_line(bad);
  }
  const std::vector<std::string> header(fields.begin(), fields.end());
  const Columns columns(schema, header, file);

  Dataset out;
  out.feature_names = columns.feature_names();
  out.features = out.feature_names.size();
  out.class_names = schema.label.classes;
  out.classes = out.class_names.size();
  while (input.line(line)) {
    if (line.empty()) continue;
    try {
      if (find_bad_utf8(bytes_of(line))) throw BadField{"", "is not UTF-8"};
      split(line, schema.separator, fields, storage);
      columns.append(fields, out);
    } catch (const BadField& bad) {
      if (on_bad_row == BadRow::kRefuse) throw bad_line(bad);
      ++out.skipped;
    }
  }
  out.digest = digest_of(out);
  return out;
}

}  // namespace discreet::training
