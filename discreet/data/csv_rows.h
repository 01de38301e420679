#pragma once

#include <filesystem>
#include <functional>
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
  // Reads the header line. Throws as read_csv.
  CsvRows(const std::filesystem::path& path, char separator);
  // table: must outlive this object. Errors count its rows from 0.
  explicit CsvRows(const Table& table);

  const std::vector<std::string>& header() const noexcept { return header_; }
  // The name of the file or table in errors.
  std::string source() const { return table_ != nullptr ? "X" : input_->path().string(); }
  // During a call of `take`: the row as in the file, without its line end; empty for a table.
  std::string_view line() const noexcept { return line_; }

  // Calls `take` with the fields of every row, as many as the header has; skips empty lines. If
  // `take` throws a BadField, the row is bad. Returns the number of skipped rows.
  std::uint64_t for_each(BadRow on_bad_row,
                         const std::function<void(const std::vector<std::string_view>&)>& take);

 private:
  std::uint64_t for_each_of_table(
      BadRow on_bad_row, const std::function<void(const std::vector<std::string_view>&)>& take);

  std::optional<Input> input_;  // of a file
  const Table* table_ = nullptr;
  char separator_ = ',';
  std::vector<std::string> header_;
  std::string_view line_;
};

// The index of a column; kInvalidDpConfig with the nearest name if the header does not contain it.
std::size_t column_of(const std::string& name, const std::vector<std::string>& header,
                      const std::string& file);

// A finite number; throws BadField otherwise.
double parse_number(std::string_view text);

}  // namespace discreet::data
