#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/text/nearest.h"
#include "discreet/config/config_document.h"
#include "discreet/data/survey.h"

namespace discreet::cli {
namespace {

constexpr const char* kOperator = "init";

struct Options {
  std::string file = "discreet.yaml";
  std::string data, test, label, header, classes, label_bounds, records;
  std::string preset;
  bool words = false, all = false, force = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, end - at);
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    out.push_back(std::move(word));
    at = end + 1;
  }
  return out;
}

// The words of the label are values of records: they are shown to the operator, and only what the
// operator gives back is written.
[[noreturn]] void ask_for_classes(const data::Survey::Column& label) {
  const std::string number = fmt::format(
      "if {} is a number to predict, give its range with --label-bounds LOWER,UPPER", label.name);
  if (label.has_more_words)
    invalid_input(kOperator, "{}; if it is a class, name the classes with --classes A,B", number);
  invalid_input(kOperator,
                "name the classes of {}, from public knowledge: --classes A,B. The file has these "
                "words (confidential; if they are public knowledge, repeat the command with them): "
                "--classes '{}'{}",
                label.name, fmt::join(label.words, ","), label.is_numeric ? "; " + number : "");
}

std::string from_folder_of(const std::string& file, const std::string& data) {
  namespace fs = std::filesystem;
  const fs::path folder = file == "-" ? fs::path(".") : fs::absolute(file).parent_path();
  return fs::relative(fs::absolute(data), folder).string();
}

// Held-out records have no guarantee, so words of their labels may be written: those that are
// another spelling of a class.
void map_test_labels(const data::Survey& test, CsvStarter& about) {
  const data::Survey::Column& label = test.column(about.label);
  for (const std::string& word : about.classes.empty() ? about.classes : label.words) {
    if (std::ranges::find(about.classes, word) != about.classes.end()) continue;
    if (const auto meant = nearest(word, about.classes)) about.map[about.label][word] = *meant;
  }
}

CsvStarter about_csv(const Options& options, const data::Survey& survey) {
  CsvStarter about;
  about.train = from_folder_of(options.file, options.data);
  about.separator = std::string(1, survey.separator);
  if (!options.header.empty()) about.header = split(options.header);
  if (options.label.empty())
    invalid_input(kOperator, "--data needs --label, the column to predict");
  const data::Survey::Column& label = survey.column(options.label);
  about.label = label.name;
  about.missing = data::usual_missing_words();
  for (const data::Survey::Column& column : survey.columns)
    if (column.name != label.name)
      (column.is_numeric ? about.numeric : about.categorical).push_back(column.name);
  if (!options.classes.empty() && !options.label_bounds.empty())
    invalid_input(kOperator, "--classes and --label-bounds are both given; keep one of them");
  if (!options.classes.empty()) about.classes = split(options.classes);
  if (!options.label_bounds.empty())
    for (const std::string& bound : split(options.label_bounds))
      about.label_bounds.push_back(parse_number("--label-bounds", bound));
  if (about.classes.empty() && about.label_bounds.empty()) ask_for_classes(label);
  if (!options.records.empty()) about.records = parse_count("--records", options.records);
  if (!options.test.empty()) {
    about.test = from_folder_of(options.file, options.test);
    map_test_labels(data::survey_csv(options.test, about.header), about);
  }
  return about;
}

void write(const Options& options, const std::string& text) {
  const std::filesystem::path path = options.file;
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kInvalidInput, "init",
                fmt::format("'{}' is {}; name a file, such as discreet.yaml", options.file,
                            path.empty() ? "no name" : "a directory"));
  }
  if (path.has_parent_path() && !std::filesystem::exists(path.parent_path(), ignored)) {
    throw Error(
        ErrorCode::kIoError, "init",
        fmt::format("'{}' could not be written: there is no directory '{}'; create it first",
                    options.file, path.parent_path().string()));
  }
  if (options.force) {
    write_atomically(path, bytes_of(text));
  } else if (std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::kInvalidInput, "init",
                fmt::format("'{}' exists; name another file, or give --force to overwrite it",
                            options.file));
  } else {
    write_new(path, bytes_of(text));
  }
}

// To standard error, so that `init -` stays a configuration.
void print_notes(const Options& options, const CsvStarter& about, const data::Survey& survey) {
  print(stderr, "  types      {} numeric, {} categorical columns, label {}; check them\n",
        about.numeric.size(), about.categorical.size(), about.label);
  if (!about.records)
    print(stderr,
          "  note       declared_size {} is a placeholder: replace it by a public number of "
          "records, or give --records\n",
          kPlaceholderRecords);
  for (const std::string& name : about.categorical)
    if (survey.column(name).has_more_words)
      print(stderr,
            "  warning    {} has more than {} different words: if it identifies people, remove it "
            "(confidential: it depends on the records)\n",
            name, data::kMostSurveyedWords);
  if (!options.words) return;
  print(stderr,
        "  words      confidential: these come from the records. Move to data.categorical those "
        "that you confirm from public knowledge; \"*\" stands for the others\n");
  for (const std::string& name : about.categorical)
    if (const data::Survey::Column& column = survey.column(name); !column.has_more_words)
      print(stderr, "    {}: [\"{}\", \"*\"]\n", name,
            fmt::format("{}", fmt::join(column.words, "\", \"")));
}

void init(const Options& options) {
  const auto preset =
      options.preset.empty() ? std::nullopt : std::optional<std::string_view>(options.preset);
  std::optional<data::Survey> survey;
  std::optional<CsvStarter> about;
  std::string text;
  if (!options.data.empty()) {
    survey = data::survey_csv(
        options.data, options.header.empty() ? std::vector<std::string>{} : split(options.header));
    about = about_csv(options, *survey);
    text = csv_starter(*about);
  } else {
    for (const auto& [name, value] : {std::pair("--label", &options.label),
                                      {"--test", &options.test},
                                      {"--header", &options.header},
                                      {"--classes", &options.classes},
                                      {"--label-bounds", &options.label_bounds},
                                      {"--records", &options.records}})
      if (!value->empty()) invalid_input(kOperator, "{} needs --data, the CSV file", name);
    text = options.all ? config_template(preset) : config_starter(preset);
  }
  if (options.file == "-") {
    print_lines(text);
  } else {
    write(options, text);
    print("wrote {}; edit it, then run: discreet check {}\n", options.file, options.file);
  }
  flush_output();
  if (about) print_notes(options, *about, *survey);
}

}  // namespace

void add_init(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("FILE", options->file, "Configuration to write; - is standard output")
      .writes_file();
  command
      .option("--data", "FILE", options->data,
              "Write a configuration for this CSV file: names and types of its columns are read, "
              "and no value of a record is written")
      .reads_file()
      .excludes({"--all", "--preset"});
  command.option("--label", "COLUMN", options->label, "Column to predict");
  command.option("--classes", "WORDS", options->classes,
                 "Words of the label, from public knowledge, separated by commas");
  command.option("--label-bounds", "LOWER,UPPER", options->label_bounds,
                 "Range of a label that is a number, from public knowledge");
  command.option("--records", "N", options->records,
                 "Public number of records: at least as many as there may be");
  command.option("--header", "NAMES", options->header,
                 "Names of the columns of a file without a header line, separated by commas");
  command.option("--test", "FILE", options->test, "CSV file of held-out records").reads_file();
  command.flag("--words", options->words,
               "Print the words of categorical columns on standard error; confidential");
  command.flag("--all", options->all, "Write every key, with a comment on each");
  command.option("--preset", "NAME", options->preset, "Preset to build on")
      .choices({"llm_flash", "peft_max_utility", "regulated_fair", "frontier_trillion"});
  command.flag("--force", options->force, "Overwrite FILE");
  command.action([options] { init(*options); });
}

}  // namespace discreet::cli
