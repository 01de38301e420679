#include "discreet/data/csv_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"

namespace discreet::data {
namespace {

constexpr std::size_t kMostColumns = std::size_t{1} << 20;

// Splits a line into fields; quoted ones are unescaped into `storage`.
// trim: spaces may stand before and after the quotes.
void split(std::string_view line, char separator, bool trim, std::vector<std::string_view>& fields,
           std::vector<std::string>& storage) {
  fields.clear();
  storage.clear();
  // So that views into it stay valid.
  storage.reserve(static_cast<std::size_t>(std::ranges::count(line, '"')) / 2 + 1);
  std::size_t at = 0;
  const auto pass_spaces = [&] {
    while (trim && at < line.size() && line[at] == ' ' && separator != ' ') ++at;
  };
  while (true) {
    pass_spaces();
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
      pass_spaces();
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

Error bad_line(const Input& input, const BadField& bad) {
  return {ErrorCode::kMalformed, "data",
          fmt::format("{}:{}: {}{}", input.path().string(), input.line_number(),
                      bad.column.empty() ? "" : fmt::format("column {}: ", bad.column), bad.what)};
}

// Some of the names, each at most once.
bool names_columns(const std::vector<std::string_view>& fields, const CsvFormat& format) {
  const std::set<std::string_view> distinct(fields.begin(), fields.end());
  return distinct.size() == fields.size() &&
         std::ranges::all_of(fields, [&](std::string_view field) {
           return std::ranges::find(format.header, field) != format.header.end();
         });
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool looks_like_record(const std::vector<std::string>& fields) {
  return std::ranges::any_of(fields, [](const std::string& field) {
    try {
      parse_number(field);
      return true;
    } catch (const BadField&) {
      return false;
    }
  });
}

double parse_number(std::string_view text, const char* remedy) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw BadField{
        "", fmt::format(
                "{}{}",
                text.empty() ? "is empty" : fmt::format("{} is not a finite number", excerpt(text)),
                remedy)};
  return value;
}

std::size_t CsvRows::column(const std::string& name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found != header_.end()) return static_cast<std::size_t>(found - header_.begin());
  const auto is_spaced = [&](const std::string& each) { return trimmed(each) == name; };
  std::string remedy;
  if (table_ == nullptr && looks_like_record(header_))
    remedy = fmt::format(
        "; its first line, which begins with {}, looks like a record: name its {} columns in "
        "data.header, such as [age, country, income]",
        excerpt(header_.front()), header_.size());
  else if (std::ranges::any_of(header_, is_spaced))
    remedy = "; the name in the file has spaces around it: set data.trim: true";
  else if (const auto meant = nearest(name, header_))
    remedy = fmt::format("; did you mean {}?", *meant);
  invalid_config("data", "{} has no column {}{}", source(), name, remedy);
}

CsvRows::CsvRows(const std::filesystem::path& path, CsvFormat format)
    : input_(path), format_(std::move(format)) {
  std::string_view line;
  if (!input_->line(line)) malformed("data", "{} is empty; it needs a header line", path.string());
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  std::vector<std::string_view> fields;
  std::vector<std::string> storage;
  try {
    const auto separators = static_cast<std::size_t>(std::ranges::count(line, format_.separator));
    if (separators >= kMostColumns)
      throw BadField{"",
                     fmt::format("the header has {} separators; at most {} columns are supported",
                                 separators, kMostColumns)};
    split(line, format_.separator, format_.trim, fields, storage);
  } catch (const BadField& bad) {
    throw bad_line(*input_, bad);
  }
  if (format_.trim)
    for (std::string_view& field : fields) field = trimmed(field);
  if (format_.header.empty() || names_columns(fields, format_)) {
    header_.assign(fields.begin(), fields.end());
  } else {
    first_ = line;
    header_ = format_.header;
  }
  index_map();
}

CsvRows::CsvRows(const Table& table, CsvFormat format)
    : table_(&table), format_(std::move(format)) {
  for (const Table::Column& column : table.columns) header_.push_back(column.name);
  index_map();
}

void CsvRows::index_map() {
  for (const std::string& name : header_) {
    const auto found = format_.map.find(name);
    map_.push_back(found == format_.map.end() ? nullptr : &found->second);
  }
}

void CsvRows::clean(std::vector<std::string_view>& fields) const {
  for (std::size_t c = 0; c < fields.size(); ++c) {
    if (format_.trim) fields[c] = trimmed(fields[c]);
    if (map_[c] == nullptr) continue;
    const auto found = map_[c]->find(std::string(fields[c]));
    if (found != map_[c]->end()) fields[c] = found->second;
  }
}

bool CsvRows::next_line(std::string_view& line) {
  if (!first_ || std::exchange(has_given_first_, true)) return input_->line(line);
  line = *first_;
  return true;
}

std::vector<std::uint64_t> CsvRows::for_each(
    BadRow on_bad_row, const std::function<void(const std::vector<std::string_view>&)>& take) {
  if (table_ != nullptr) return for_each_of_table(on_bad_row, take);
  std::vector<std::uint64_t> skipped;
  std::string_view line;
  std::vector<std::string_view> fields;
  std::vector<std::string> storage;
  for (std::uint64_t row = 0; next_line(line); ++row) {
    if (line.empty()) {
      --row;
      continue;
    }
    try {
      if (find_bad_utf8(bytes_of(line))) throw BadField{"", "is not UTF-8"};
      split(line, format_.separator, format_.trim, fields, storage);
      if (fields.size() != header_.size())
        throw BadField{
            "", fmt::format("found {} fields; the header has {}", fields.size(), header_.size())};
      clean(fields);
      line_ = line;
      take(fields);
    } catch (const BadField& bad) {
      if (on_bad_row == BadRow::kRefuse) throw bad_line(*input_, bad);
      skipped.push_back(row);
    }
  }
  return skipped;
}

std::vector<std::uint64_t> CsvRows::for_each_of_table(
    BadRow on_bad_row, const std::function<void(const std::vector<std::string_view>&)>& take) {
  constexpr std::size_t kLongestNumber = 32;
  const std::vector<Table::Column>& columns = table_->columns;
  std::vector<std::array<char, kLongestNumber>> storage(columns.size());
  std::vector<std::string_view> fields(columns.size());
  const auto field = [&](std::size_t c, std::size_t row) -> std::string_view {
    const Table::Column& column = columns[c];
    if (column.numbers == nullptr) return column.words.at(row);
    const double number = column.numbers[static_cast<std::ptrdiff_t>(row) * column.stride];
    if (std::isnan(number)) return {};
    char* const begin = storage[c].data();
    return {begin, std::to_chars(begin, begin + kLongestNumber, number).ptr};
  };
  std::vector<std::uint64_t> skipped;
  for (std::size_t row = 0; row < table_->rows; ++row) {
    for (std::size_t c = 0; c < columns.size(); ++c) fields[c] = field(c, row);
    clean(fields);
    try {
      take(fields);
    } catch (const BadField& bad) {
      if (on_bad_row == BadRow::kRefuse)
        malformed("data", "row {}, column {}: {}", row, bad.column, bad.what);
      skipped.push_back(row);
    }
  }
  return skipped;
}

}  // namespace discreet::data
