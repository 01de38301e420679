#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/hash.h"
#include "discreet/config/config.h"
#include "discreet/data/table.h"

// Reads data such that what reaches the model depends on one record at a time: bounds and
// vocabularies are declared, never derived from the data. A mean, a range or a list of categories
// computed from all records would be an unaccounted release.
namespace discreet::data {

// Records in the form that models use.
struct Dataset {
  std::size_t rows = 0;
  std::size_t features = 0;
  std::size_t height = 0, width = 0;  // if records are images: features = height x width
  std::size_t classes = 0;            // 0: the labels are numbers (regression)
  std::vector<float> x;               // rows x features, row-major
  std::vector<std::uint32_t> label;   // one per row, < classes
  std::vector<float> target;          // one per row if classes is 0
  std::vector<std::string> feature_names;
  std::vector<std::string> class_names;
  // Bad rows that were left out, among all rows of the file, from 0; confidential.
  std::vector<std::uint64_t> skipped;
  std::vector<Digest> anchors;  // csv: SHA-256 of each record's line, without its end
  Digest digest{};              // SHA-256 of the content: a run commits to it
};

// Copies the rows `records` of x [..][features], in this order, to `out`; independent of threads.
void gather(std::span<const float> x, std::size_t features, std::span<const std::uint64_t> records,
            int threads, std::vector<float>& out);

using discreet::BadRow;

// ---------------------------------------------------------------- CSV

// A number, mapped linearly from [lower, upper] to [-1, 1]; values outside are clamped.
struct NumericColumn {
  double lower;
  double upper;  // > lower, both finite
};
// One of the declared words: one feature per word, 1 for the present word and 0 for the others. An
// undeclared word makes the row bad, unless `other` adds a feature for all of them.
struct CategoricalColumn {
  std::vector<std::string> vocabulary;  // not empty, unique words
  bool other = false;
};
struct LabelColumn {
  std::string name;
  // The classes in order; empty: a number in [lower, upper], mapped to [-1, 1].
  std::vector<std::string> classes;
  double lower = 0, upper = 0;
};

// How the text of a row becomes fields. A field is first trimmed, then mapped.
struct CsvFormat {
  char separator = ',';
  bool trim = false;  // remove spaces and tabs around fields and names
  // The names of a file without a header line. A first line that consists of some of these names
  // is a header line nevertheless.
  std::vector<std::string> header;
  SpellingsMap map;                  // by column: text to the text that it stands for
  std::vector<std::string> missing;  // texts of a missing value
  bool is_missing(std::string_view text) const {
    return std::find(missing.begin(), missing.end(), text) != missing.end();
  }
};

// A missing number is the middle of its bounds, 0. A missing word that is not in the vocabulary is
// `other`, or without it none of the features: all are 0. A missing label makes the row bad.
struct CsvSchema {
  std::map<std::string, NumericColumn> numeric;          // by column name
  std::map<std::string, CategoricalColumn> categorical;  // columns in no map are not read
  // By column: the number of features k. A word has a 1 in feature h mod k, where h is the number
  // in the first 8 bytes of its SHA-256, most significant first.
  std::map<std::string, std::uint64_t> hashed;
  LabelColumn label;
  CsvFormat format;
  bool needs_label = true;  // false for prediction: the label column may be missing
};

// A CSV file (RFC 4180 with a header line; quotes, "" inside quotes, no line breaks inside fields;
// gzip or plain). Features are in the order of the file's columns. An empty field makes the row
// bad, unless it is a missing value. Throws kInvalidDpConfig for an invalid schema or one with
// columns that the file does not have, with the nearest name; kMalformed for a bad row, as
// "FILE:LINE: column NAME: …"; kIoError.
Dataset read_csv(const std::filesystem::path& path, const CsvSchema& schema,
                 BadRow on_bad_row = BadRow::kRefuse);
// The same for records in memory, without anchors; a bad row is "row R, column NAME: …". The same
// records give the same digest as from a file.
Dataset read_table(const Table& table, const CsvSchema& schema,
                   BadRow on_bad_row = BadRow::kRefuse);

// ---------------------------------------------------------------- images and arrays

// The MNIST format: images (unsigned bytes, 3 dimensions) mapped from [0, 255] to [0, 1], and
// labels (unsigned bytes, 1 dimension) below `classes`; gzip or plain. Throws kMalformed for a
// wrong magic number, a different number of labels, a truncated or too long file, or a label that
// is not a class. labels: an empty path for prediction, without labels.
Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                 std::size_t classes);

// NumPy's .npy, version 1 or 2: features as a C-ordered 2-dimensional array of <f4, <f8 or |u1,
// with declared bounds mapped to [-1, 1]; labels as a 1-dimensional array of integers (<i8, <i4,
// |u1). Values outside the bounds are clamped; one that is not finite makes the row bad. Throws as
// above.
Dataset read_npy(const std::filesystem::path& features, const NumericColumn& bounds,
                 const std::filesystem::path& labels, std::size_t classes,
                 BadRow on_bad_row = BadRow::kRefuse);

}  // namespace discreet::data
