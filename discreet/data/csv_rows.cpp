#include "discreet/data/csv_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"

namespace discreet::data {
namespace {

constexpr std::size_t kMostColumns = std::size_t{1} << 20;

// Splits a line into fields; quoted ones are unescaped into `storage`.
void split(std::string_view line, char separator, std::vector<std::string_view>& fields,
           std::vector<std::string>& storage) {
  fields.clear();
  storage.clear();
  // So that views into it stay valid.
  storage.reserve(static_cast<std::size_t>(std::ranges::count(line, '"')) / 2 + 1);
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

Error bad_line(const Input& input, const BadField& bad) {
  return {ErrorCode::kMalformed, "data",
          fmt::format("{}:{}: {}{}", input.path().string(), input.line_number(),
                      bad.column.empty() ? "" : fmt::format("column {}: ", bad.column), bad.what)};
}

}  // namespace

double parse_number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw BadField{
        "", text.empty() ? "is empty" : fmt::format("{} is not a finite number", excerpt(text))};
  return value;
}

std::size_t column_of(const std::string& name, const std::vector<std::string>& header,
                      const std::string& file) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found != header.end()) return static_cast<std::size_t>(found - header.begin());
  const auto meant = nearest(name, header);
  invalid_config("data", "{} has no column {}{}", file, name,
                 meant ? fmt::format("; did you mean {}?", *meant) : "");
}

CsvRows::CsvRows(const std::filesystem::path& path, char separator)
    : input_(path), separator_(separator) {
  std::string_view line;
  if (!input_->line(line)) malformed("data", "{} is empty; it needs a header line", path.string());
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  std::vector<std::string_view> fields;
  std::vector<std::string> storage;
  try {
    const auto separators = static_cast<std::size_t>(std::ranges::count(line, separator));
    if (separators >= kMostColumns)
      throw BadField{"",
                     fmt::format("the header has {} separators; at most {} columns are supported",
                                 separators, kMostColumns)};
    split(line, separator, fields, storage);
  } catch (const BadField& bad) {
    throw bad_line(*input_, bad);
  }
  header_.assign(fields.begin(), fields.end());
}

CsvRows::CsvRows(const Table& table) : table_(&table) {
  for (const Table::Column& column : table.columns) header_.push_back(column.name);
}

std::uint64_t CsvRows::for_each(
    BadRow on_bad_row, const std::function<void(const std::vector<std::string_view>&)>& take) {
  if (table_ != nullptr) return for_each_of_table(on_bad_row, take);
  std::uint64_t skipped = 0;
  std::string_view line;
  std::vector<std::string_view> fields;
  std::vector<std::string> storage;
  while (input_->line(line)) {
    if (line.empty()) continue;
    try {
      if (find_bad_utf8(bytes_of(line))) throw BadField{"", "is not UTF-8"};
      split(line, separator_, fields, storage);
      if (fields.size() != header_.size())
        throw BadField{
            "", fmt::format("found {} fields; the header has {}", fields.size(), header_.size())};
      line_ = line;
      take(fields);
    } catch (const BadField& bad) {
      if (on_bad_row == BadRow::kRefuse) throw bad_line(*input_, bad);
      ++skipped;
    }
  }
  return skipped;
}

std::uint64_t CsvRows::for_each_of_table(
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
  std::uint64_t skipped = 0;
  for (std::size_t row = 0; row < table_->rows; ++row) {
    for (std::size_t c = 0; c < columns.size(); ++c) fields[c] = field(c, row);
    try {
      take(fields);
    } catch (const BadField& bad) {
      if (on_bad_row == BadRow::kRefuse)
        malformed("data", "row {}, column {}: {}", row, bad.column, bad.what);
      ++skipped;
    }
  }
  return skipped;
}

}  // namespace discreet::data
