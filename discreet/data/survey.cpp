#include "discreet/data/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"
#include "discreet/data/csv_rows.h"
#include "discreet/data/input.h"

namespace discreet::data {
namespace {

constexpr const char* kOperator = "init";

char separator_of(const std::filesystem::path& path) {
  Input input(path);
  std::string_view line;
  input.line(line);
  char best = ',';
  for (const char each : {';', '\t', '|'})
    if (std::ranges::count(line, each) > std::ranges::count(line, best)) best = each;
  return best;
}

bool is_number(std::string_view text) {
  try {
    parse_number(text);
    return true;
  } catch (const BadField&) {
    return false;
  }
}

void check_names(const CsvRows& rows) {
  const std::vector<std::string>& names = rows.header();
  if (rows.format().header.empty() && looks_like_record(names))
    invalid_input(kOperator,
                  "{} has no header line: its first line, which begins with {}, is a record; name "
                  "its {} columns with --header, such as --header age,country,income",
                  rows.source(), excerpt(names.front()), names.size());
  const std::set<std::string> distinct(names.begin(), names.end());
  if (distinct.contains("") || distinct.size() != names.size())
    invalid_input(
        kOperator,
        "the header of {} has an empty name, or a name twice; give every column a name of "
        "its own in the file, or with --header",
        rows.source());
}

}  // namespace

const std::vector<std::string>& usual_missing_words() {
  static const std::vector<std::string> words = {"",    "?",   "NA",   "N/A",
                                                 "nan", "NaN", "null", "NULL"};
  return words;
}

const Survey::Column& Survey::column(const std::string& name) const {
  const auto found = std::ranges::find(columns, name, &Column::name);
  if (found != columns.end()) return *found;
  std::vector<std::string> names;
  for (const Column& each : columns) names.push_back(each.name);
  const auto meant = nearest(name, names);
  invalid_input(kOperator, "there is no column {}; {}the columns are {}", excerpt(name),
                meant ? fmt::format("did you mean {}? ", *meant) : "", fmt::join(names, ", "));
}

Survey survey_csv(const std::filesystem::path& path, const std::vector<std::string>& header) {
  const CsvFormat format{separator_of(path), true, header, {}, usual_missing_words()};
  CsvRows rows(path, format);
  check_names(rows);
  Survey out{format.separator, {}};
  struct Found {
    std::set<std::string, std::less<>> words;
    bool has_words = false, has_numbers = false, has_more = false;
  };
  std::vector<Found> found(rows.header().size());
  std::size_t read = 0;
  rows.for_each(BadRow::kSkip, [&](const std::vector<std::string_view>& fields) {
    ++read;
    for (std::size_t c = 0; c < fields.size(); ++c) {
      if (format.is_missing(fields[c])) continue;
      Found& own = found[c];
      (is_number(fields[c]) ? own.has_numbers : own.has_words) = true;
      if (own.has_more || own.words.contains(fields[c])) continue;
      own.has_more = own.words.size() == kMostSurveyedWords;
      if (!own.has_more) own.words.emplace(fields[c]);
    }
  });
  if (read == 0)  // says why
    CsvRows(path, format).for_each(BadRow::kRefuse, [](const std::vector<std::string_view>&) {});
  for (std::size_t c = 0; c < found.size(); ++c)
    out.columns.push_back({rows.header()[c],
                           found[c].has_numbers && !found[c].has_words,
                           {found[c].words.begin(), found[c].words.end()},
                           found[c].has_more});
  return out;
}

}  // namespace discreet::data
