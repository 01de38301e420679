#include "discreet/unlearning/service/declared_rows.h"

#include <algorithm>
#include <unordered_map>

#include "discreet/base/error.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_table.h"
#include "discreet/data/csv_rows.h"
#include "discreet/data/open.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "unlearn";

// data: of the declared columns, in the order of the file.
std::vector<Row> rows_of(const data::CsvSchema& columns, const data::Dataset& data) {
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < data.feature_names.size(); ++i)
    places.emplace(data.feature_names[i], i);
  std::vector<std::size_t> order;
  for (const std::string& name : feature_names(columns)) order.push_back(places.at(name));
  std::vector<Row> rows(data.rows);
  for (std::size_t r = 0; r < data.rows; ++r) {
    const float* x = data.x.data() + r * data.features;
    for (const std::size_t at : order) rows[r].x.push_back(x[at]);
    if (!data.label.empty()) rows[r].y = data.label[r] == 0 ? -1 : 1;
  }
  return rows;
}

// Adds the subject, and a label that is a number, which a data set has clamped.
void complete(std::vector<Row>& rows, const data::CsvSchema& columns, double Y,
              data::CsvRows source, const std::string& subject) {
  const auto& header = source.header();
  const auto place = [&](const std::string& name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const data::LabelColumn& label = columns.label;
  const std::size_t whose = place(subject);
  const std::size_t number = label.classes.empty() ? place(label.name) : header.size();
  std::size_t next = 0;
  source.for_each(data::BadRow::kRefuse, [&](const std::vector<std::string_view>& fields) {
    Row& row = rows.at(next++);
    if (whose < fields.size()) row.subject = fields[whose];
    if (number < fields.size())
      row.y = Y * (2 * (data::parse_number(fields[number]) - label.lower) /
                       (label.upper - label.lower) -
                   1);
  });
}

}  // namespace

data::CsvSchema declared_columns(std::string_view yaml, std::string_view name) {
  // Every other configuration needs a budget; this one need not have it.
  const std::vector<std::string> budget = {"target_epsilon=1"};
  const DataConfig data = read_config(yaml, name, budget).config.data;
  if (data.format != DataFormat::kCsv)
    invalid_config(kOp, "{}: data.format is {}; deletions need named columns: use csv", name,
                   spelling(data.format));
  data::check_data(data, true);
  if (!data.private_bounds.empty())
    invalid_config(kOp,
                   "{}: data.private_bounds has no effect here, where no budget pays for a release "
                   "of bounds; declare {} in data.numeric",
                   name, data.private_bounds[0]);
  return data::csv_schema(data, {});
}

std::vector<Row> declared_rows(data::CsvSchema columns, double Y, const std::filesystem::path& csv,
                               const std::string& subject, bool need_label) {
  columns.needs_label = need_label;
  data::CsvRows source(csv, columns.format);
  if (need_label) source.column(subject);
  std::vector<Row> rows = rows_of(columns, data::read_csv(csv, columns));
  complete(rows, columns, Y, std::move(source), subject);
  return rows;
}

std::vector<Row> declared_rows(data::CsvSchema columns, double Y, const data::Table& table,
                               bool need_label) {
  columns.needs_label = need_label;
  std::vector<Row> rows = rows_of(columns, data::read_table(table, columns));
  complete(rows, columns, Y, data::CsvRows(table, columns.format), "");
  return rows;
}

}  // namespace discreet::unlearning
