#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/data/dataset.h"

// How a record becomes the vector that an engine learns, and a score becomes an answer.
// Proof: record_form.md
namespace discreet::unlearning {

// Public: fixed when a model is created, from declarations only, and stored with it. The map of a
// record depends on nothing else, so it is applied alike when a record is inserted and when the
// model predicts.
struct RecordForm {
  // Appends a constant to every record. Its weight is regularised like the others.
  bool intercept = false;
  // The declared columns of CSV files and tables. Empty: features and labels are numbers, used as
  // they are. The label is two classes, which are the labels -1 and 1 in this order, or a number in
  // [lower, upper], which is mapped to [-Y, Y].
  std::optional<data::CsvSchema> columns;

  bool is_plain() const noexcept { return !intercept && !columns; }
};

// Throws kInvalidInput unless the label has two classes or bounds, and feature names are distinct.
void require_sound(const RecordForm& form);

// The features of declared columns, in the order in which a model learns them: numeric columns,
// then the words of categorical ones, each ascending by name. Files may have their columns in any
// order.
std::vector<std::string> feature_names(const data::CsvSchema& columns);

// The vector z of a record x; R: the engine's bound of a record's norm, > 0. Not above R, up to
// rounding, if a column is declared or there is an intercept; the engine enforces R in any case.
//   plain                    z = x
//   intercept                z = (x scaled to norm at most R, R) / sqrt(2)
//   k columns                z = R x / sqrt(k)
//   k columns and intercept  z = R (x, 1) / sqrt(k + 1)
// Declared columns: x has numbers in [-1, 1], and for each categorical column one 1 among 0s.
std::vector<double> mapped(const RecordForm& form, std::span<const double> x, double R);

// The class or the number that a score stands for. Y: the engine's bound of labels, > 0. A score of
// 0 is the first class.
std::string class_of(const RecordForm& form, double score);  // empty if there are no classes
double number_of(const RecordForm& form, double score, double Y);

// Deterministic; decoding throws kMalformed for other bytes.
Bytes encode(const RecordForm& form);
RecordForm decode_record_form(ByteView bytes);

}  // namespace discreet::unlearning
