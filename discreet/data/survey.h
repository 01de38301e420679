#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "discreet/data/dataset.h"

namespace discreet::data {

// What `discreet init` needs to know of a CSV file. Names and types of columns are its schema,
// which is taken as public. Words are values of records: confidential, for the operator's terminal
// only, never for a file.
struct Survey {
  struct Column {
    std::string name;
    bool is_numeric = false;  // every field that is not missing is a finite number
    std::vector<std::string>
        words;                    // distinct and sorted, at most kMostSurveyedWords; confidential
    bool has_more_words = false;  // confidential
  };
  char separator = ',';
  std::vector<Column> columns;  // in the order of the file

  // Throws kInvalidInput with the nearest name.
  const Column& column(const std::string& name) const;
};
inline constexpr std::size_t kMostSurveyedWords = 64;

// Words that many files use for a missing value: a public list, the same for every file.
const std::vector<std::string>& usual_missing_words();

// Reads a file, trimmed and with the usual missing words; rows of other lengths are passed over.
// The separator is the most frequent of , ; | and tab in the first line. header: names of a file
// without a header line, otherwise empty. Throws as CsvRows, and kInvalidInput if there is no
// header line and no names, if a name is missing or double, or if no row has as many fields.
Survey survey_csv(const std::filesystem::path& path, const std::vector<std::string>& header);

}  // namespace discreet::data
