#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "discreet/base/hash.h"

namespace discreet::data {

// Records that a program holds in memory, column by column. A table is read as a CSV file with the
// same columns: a number stands for its shortest decimal text, which reads back to the same bits,
// and NaN for an empty field. So bounds, vocabularies and bad rows mean the same in both.
struct Table {
  struct Column {
    std::string name;
    const double* numbers = nullptr;  // of row 0; null if the column holds words
    std::ptrdiff_t stride = 1;        // from one row to the next, in numbers
    std::vector<std::string> words;   // UTF-8, one per row
  };
  std::size_t rows = 0;
  std::vector<Column> columns;  // each of `rows` values; the numbers are the caller's
};

// What a run trains on instead of files.
struct Arrays {
  Table train;
  std::optional<Table> test;  // held-out records
};

// SHA-256 over names, words and the bits of the numbers.
Digest digest_of(const Table& table);

}  // namespace discreet::data
