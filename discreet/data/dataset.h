#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/base/hash.h"

// Reading data so that what reaches the model depends on one record at a time: bounds and
// vocabularies are declared, never taken from the data. A mean, a range or a list of categories
// computed from all records would be a release nobody accounts for.
namespace discreet::data {

// Records as a model takes them.
struct Dataset {
  std::size_t rows = 0;
  std::size_t features = 0;
  std::size_t height = 0, width = 0;  // of records that are images, features = height x width
  std::size_t classes = 0;            // 0: the labels are numbers (regression)
  std::vector<float> x;               // rows x features, row-major
  std::vector<std::uint32_t> label;   // one per row, < classes
  std::vector<float> target;          // one per row if classes is 0
  std::vector<std::string> feature_names;
  std::vector<std::string> class_names;
  std::uint64_t skipped = 0;    // rows left out because they were bad; confidential
  std::vector<Digest> anchors;  // csv: SHA-256 of each record's line, without its end
  Digest digest{};              // SHA-256 of the content: what a run commits to
};

// out = the rows of `records`, one after the other, each < the rows of x [..][features]; same for
// any number of threads.
void gather(std::span<const float> x, std::size_t features, std::span<const std::uint64_t> records,
            int threads, std::vector<float>& out);

// What to do with a row that cannot be read.
enum class BadRow {
  kRefuse,  // kMalformed, naming file, line and column
  kSkip,    // leave it out and count it
};

// ---------------------------------------------------------------- CSV

// A number, mapped linearly from [lower, upper] to [-1, 1]; values outside are moved to the bound.
struct NumericColumn {
  double lower;
  double upper;  // > lower, both finite
};
// One of the declared words: one feature each, 1 for the word that is there and 0 for the others. A
// word that was not declared is a bad row, unless `other` names the feature that takes them all.
struct CategoricalColumn {
  std::vector<std::string> vocabulary;  // not empty, no word twice
  bool other = false;
};
struct LabelColumn {
  std::string name;
  // The classes in order; empty: a number in [lower, upper], mapped to [-1, 1].
  std::vector<std::string> classes;
  double lower = 0, upper = 0;
};

struct CsvSchema {
  std::map<std::string, NumericColumn> numeric;          // by column name
  std::map<std::string, CategoricalColumn> categorical;  // columns in neither are not read
  LabelColumn label;
  char separator = ',';
  bool needs_label = true;  // false, to predict: a file without that column is read, without labels
};

// A CSV file (RFC 4180 with a header line; quotes, "" inside quotes, no line breaks inside fields;
// gzip or plain). Features are in the order of the columns in the file. An empty field is a bad
// row. Throws kInvalidDpConfig for a schema that is none or names columns the file has not, with
// the nearest name; kMalformed for a bad row, as "FILE:LINE: column NAME: …"; kIoError.
Dataset read_csv(const std::filesystem::path& path, const CsvSchema& schema,
                 BadRow on_bad_row = BadRow::kRefuse);

// ---------------------------------------------------------------- images and arrays

// MNIST's format: images (unsigned bytes, 3 dimensions) mapped from [0, 255] to [0, 1], labels
// (unsigned bytes, 1 dimension) below `classes`. gzip or plain. Throws kMalformed for another magic
// number, another number of labels, a file that is cut or too long, a label that is no class.
// labels: an empty path, to predict: none are read.
Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                 std::size_t classes);

// NumPy's .npy, version 1 or 2: features as a C-ordered 2-dimensional array of <f4, <f8 or |u1,
// with declared bounds mapped to [-1, 1]; labels as a 1-dimensional array of integers (<i8, <i4,
// |u1). Values outside the bounds are moved to them; one that is not finite is a bad row. Throws as
// above.
Dataset read_npy(const std::filesystem::path& features, const NumericColumn& bounds,
                 const std::filesystem::path& labels, std::size_t classes,
                 BadRow on_bad_row = BadRow::kRefuse);

}  // namespace discreet::data
