#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/data/table.h"
#include "discreet/unlearning/service/record_form.h"
#include "discreet/unlearning/service/service.h"

namespace discreet::unlearning {

// The columns that the section `data` of a configuration declares; its other sections are ignored.
// yaml, name: as for read_config. Throws kInvalidDpConfig as read_config and data::check_data, for
// a format other than csv, and for private_bounds, whose release no budget of deletions covers.
data::CsvSchema declared_columns(std::string_view yaml, std::string_view name);

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
