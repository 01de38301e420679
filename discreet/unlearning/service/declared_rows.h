#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "discreet/data/table.h"
#include "discreet/unlearning/service/record_form.h"
#include "discreet/unlearning/service/service.h"

namespace discreet::unlearning {

// The records of a CSV file or table with the columns that a form declares, as training reads them:
// numbers are mapped to [-1, 1] and clamped, words are looked up. x has the features in the order
// of feature_names(); y is -1 or 1 for classes, and [lower, upper] is mapped to [-Y, Y] without a
// clamp, so that Service::insert sees a label beyond its bounds.
//
// subject: the column of the subject. need_label: if false, subject and label may be missing; then
// y is 0. Throws as data::read_csv and data::read_table.
std::vector<Row> declared_rows(data::CsvSchema columns, double Y, const std::filesystem::path& csv,
                               const std::string& subject, bool need_label);
// The same for a table, whose rows have empty subjects.
std::vector<Row> declared_rows(data::CsvSchema columns, double Y, const data::Table& table,
                               bool need_label);

}  // namespace discreet::unlearning
