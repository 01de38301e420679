#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/data/dataset.h"
#include "discreet/data/input.h"

namespace discreet::data {

// A field that cannot be read, and why. CsvRows turns it into an error with file, line and column,
// or passes over the row.
struct BadField {
  std::string column;
  std::string what;
};

// The rows of a CSV file, one at a time.
class CsvRows {
 public:
  // Reads the header line. Throws as read_csv.
  CsvRows(const std::filesystem::path& path, char separator);

  const std::vector<std::string>& header() const noexcept { return header_; }
  // While `take` is called: the row as it is in the file, without its end.
  std::string_view line() const noexcept { return line_; }

  // Calls `take` with the fields of every row, as many as the header has; lines without anything
  // are passed over. A BadField thrown by `take` makes the row a bad one. Returns how many rows
  // were skipped.
  std::uint64_t for_each(BadRow on_bad_row,
                         const std::function<void(const std::vector<std::string_view>&)>& take);

 private:
  Input input_;
  char separator_;
  std::vector<std::string> header_;
  std::string_view line_;
};

// The place of a column; kInvalidDpConfig with the nearest name if the header has none.
std::size_t column_of(const std::string& name, const std::vector<std::string>& header,
                      const std::string& file);

// A finite number; throws BadField otherwise.
double parse_number(std::string_view text);

}  // namespace discreet::data
