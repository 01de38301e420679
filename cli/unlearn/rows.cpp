#include "cli/unlearn/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/input.h"
#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/data/csv_rows.h"
#include "discreet/unlearning/service/declared_rows.h"

namespace discreet::cli {
namespace {

using nlohmann::json;
using unlearning::Row;

std::vector<Row> read_csv(const std::string& path, const RowNames& names, bool need_label) {
  data::CsvRows csv(path, data::CsvFormat{});
  const auto& header = csv.header();
  const auto place = [&](const std::string& name,
                         const char* option) -> std::optional<std::size_t> {
    const auto at = std::find(header.begin(), header.end(), name);
    if (at != header.end()) return static_cast<std::size_t>(at - header.begin());
    if (!need_label) return std::nullopt;
    constexpr std::size_t kMostNames = 8;
    const bool cut = header.size() > kMostNames;
    throw Error(
        ErrorCode::kInvalidInput, "data",
        fmt::format(
            "{} has no column {}; name another with {}. It has {}{}", path, name, option,
            fmt::join(header.begin(), header.begin() + std::min(header.size(), kMostNames), ", "),
            cut ? fmt::format(" and {} more", header.size() - kMostNames) : ""));
  };
  const auto subject = place(names.subject, "--subject-column");
  const auto label = place(names.label, "--label-column");
  std::vector<Row> rows;
  csv.for_each(data::BadRow::kRefuse, [&](const std::vector<std::string_view>& fields) {
    Row row;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (i == subject) {
        row.subject = fields[i];
        continue;
      }
      double value = 0;
      try {
        value = data::parse_number(fields[i]);
      } catch (const data::BadField& bad) {
        throw data::BadField{header[i], bad.what};
      }
      if (i == label) {
        row.y = value;
      } else {
        row.x.push_back(value);
      }
    }
    rows.push_back(std::move(row));
  });
  return rows;
}

std::vector<Row> read_jsonl(const std::string& path, bool need_label) {
  std::istringstream lines(read_input(path));
  std::vector<Row> rows;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const json object = read_json(line, unique_names());
      Row row;
      row.x = object.at("x").get<std::vector<double>>();
      if (need_label || object.contains("y")) row.y = object.at("y").get<double>();
      if (need_label || object.contains("subject"))
        row.subject = object.at("subject").get<std::string>();
      rows.push_back(std::move(row));
    } catch (const Error& error) {  // that does not know the line
      fail(error.code(), "data", "{}:{}: {}", path, number, error.sentence());
    } catch (const json::exception&) {
      throw Error(ErrorCode::kMalformed, "data",
                  fmt::format("{}:{}: a line is {}", path, number,
                              R"({"subject": "a", "x": [1.5, 2], "y": 1})"));
    }
  }
  return rows;
}

}  // namespace

void RowNames::add_options(Command& command) {
  command.option("--subject-column", "NAME", subject, "CSV: column of the subject");
  command.option("--label-column", "NAME", label, "CSV: column of the label");
}

std::vector<Row> read_rows(const std::string& path, const RowNames& names, bool need_label) {
  return path.ends_with(".jsonl") ? read_jsonl(path, need_label)
                                  : read_csv(path, names, need_label);
}

std::vector<Row> read_rows(const unlearning::Service& service, const std::string& path,
                           const RowNames& names, bool need_label) {
  const auto& columns = service.form().columns;
  if (!columns) return read_rows(path, names, need_label);
  if (path.ends_with(".jsonl"))
    throw Error(ErrorCode::kInvalidInput, "data",
                fmt::format("{} has JSON lines, but this model has declared columns; give a CSV "
                            "file with a header",
                            path));
  return unlearning::declared_rows(*columns, service.label_bound(), path, names.subject,
                                   need_label);
}

std::vector<std::string> read_subjects(const std::string& path) {
  std::istringstream lines(read_input(path));
  std::vector<std::string> subjects;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) subjects.push_back(line);
  }
  return subjects;
}

}  // namespace discreet::cli
