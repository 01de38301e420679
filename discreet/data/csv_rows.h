#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/data/dataset.h"
#include "discreet/data/input.h"
#include "discreet/data/table.h"

namespace discreet::data {

// A field that cannot be read, and the reason. CsvRows turns it into an error with file, line and
// column, or skips the row.
struct BadField {
  std::string column;
  std::string what;
};

// The rows of a CSV file or of a table, one at a time.
class CsvRows {
 public:
  // Reads the header line, if the file has one. Throws as read_csv.
  CsvRows(const std::filesystem::path& path, CsvFormat format);
  // table: must outlive this object. Errors count its rows from 0. The names of the format have no
  // effect.
  explicit CsvRows(const Table& table, CsvFormat format = {});

  const CsvFormat& format() const noexcept { return format_; }
  const std::vector<std::string>& header() const noexcept { return header_; }
  // The index of a column; kInvalidDpConfig with the nearest name, or with what is wrong with the
  // header line, if there is none of that name.
  std::size_t column(const std::string& name) const;
  // The name of the file or table in errors.
  std::string source() const { return table_ != nullptr ? "X" : input_->path().string(); }
  // During a call of `take`: the row as in the file, without its line end; empty for a table.
  std::string_view line() const noexcept { return line_; }

  // Calls `take` with the fields of every row, as many as the header has; skips empty lines. If
  // `take` throws a BadField, the row is bad. Returns the skipped rows, counted from 0.
  std::vector<std::uint64_t> for_each(
      BadRow on_bad_row, const std::function<void(const std::vector<std::string_view>&)>& take);

 private:
  bool next_line(std::string_view& line);
  void clean(std::vector<std::string_view>& fields) const;
  void index_map();
  std::vector<std::uint64_t> for_each_of_table(
      BadRow on_bad_row, const std::function<void(const std::vector<std::string_view>&)>& take);

  std::optional<Input> input_;  // of a file
  const Table* table_ = nullptr;
  CsvFormat format_;
  std::vector<std::string> header_;
  std::optional<std::string> first_;  // the record in the first line
  bool has_given_first_ = false;
  std::vector<const std::map<std::string, std::string>*> map_;  // by column; null: nothing to map
  std::string_view line_;
};

// Whether a line can only be a record: a field is a number. Then a header line is missing.
bool looks_like_record(const std::vector<std::string>& fields);

// The text without spaces and tabs around it.
std::string_view trimmed(std::string_view text);

// A finite number; throws BadField otherwise. remedy: the end of its sentence.
double parse_number(std::string_view text, const char* remedy = "");
inline constexpr const char* kMayBeMissing =
    "; if that stands for a missing value, list it in data.missing";

}  // namespace discreet::data
