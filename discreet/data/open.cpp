#include "discreet/data/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/data/dataset_impl.h"
#include "discreet/data/digits.h"
#include "discreet/data/private_bounds.h"

namespace discreet::data {
namespace {

constexpr std::size_t kIdxClasses = 10;

constexpr const char* kOperator = "data";

void require(bool given, const char* key, DataFormat format, const char* remedy) {
  if (!given)
    invalid_config(kOperator, "data.{} is missing, and data.format is {}; {}", key,
                   spelling(format), remedy);
}

// A key that is given must mean something for the format.
void check_keys_of_format(const DataConfig& d) {
  struct Use {
    const char* key;
    bool given;
    std::vector<DataFormat> formats;
  };
  using enum DataFormat;
  const std::vector<DataFormat> files = {kCsv, kIdx, kNpy}, arrays = {kIdx, kNpy}, csv = {kCsv};
  const Use uses[] = {{"train", d.train.has_value(), files},
                      {"train_labels", d.train_labels.has_value(), arrays},
                      {"test", d.test.has_value(), files},
                      {"test_labels", d.test_labels.has_value(), arrays},
                      {"holdout", d.holdout > 0, files},
                      {"label", d.label.has_value(), csv},
                      {"classes", !d.classes.empty(), csv},
                      {"label_bounds", !d.label_bounds.empty(), csv},
                      {"numeric", !d.numeric.empty(), csv},
                      {"categorical", !d.categorical.empty(), csv},
                      {"private_bounds", !d.private_bounds.empty(), csv},
                      {"header", !d.header.empty(), csv},
                      {"trim", d.trim, csv},
                      {"map", !d.map.empty(), csv},
                      {"missing", !d.missing.empty(), csv},
                      {"hashed", !d.hashed.empty(), csv},
                      {"on_bad_row", d.on_bad_row != BadRow::kRefuse, {kCsv, kNpy}},
                      {"class_count", d.class_count.has_value(), arrays},
                      {"bounds", !d.bounds.empty(), {kNpy}},
                      {"image", !d.image.empty(), {kCsv, kNpy}}};
  for (const Use& use : uses) {
    if (!use.given ||
        std::find(use.formats.begin(), use.formats.end(), d.format) != use.formats.end())
      continue;
    std::vector<std::string_view> names;
    for (const DataFormat format : use.formats) names.push_back(spelling(format));
    invalid_config(
        kOperator,
        "data.{} has no effect with data.format: {}; set data.format to {}, or remove it", use.key,
        spelling(d.format), fmt::join(names, " or "));
  }
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_csv(const DataConfig& d) {
  require(d.label.has_value(), "label", d.format, "name the column to predict");
  if (d.separator.size() != 1 || d.separator == "\"" || d.separator == "\n" || d.separator == "\r")
    invalid_config(kOperator,
                   "data.separator is '{}'; it must be one character, such as \",\" or \"\\t\"",
                   d.separator);
  if (d.classes.empty() == d.label_bounds.empty())
    invalid_config(kOperator,
                   "data.classes and data.label_bounds are {} set; list the words of {} as "
                   "data.classes, or set data.label_bounds: [lower, upper] if it is a number",
                   d.classes.empty() ? "neither" : "both", *d.label);
  if (d.classes.size() == 1)
    invalid_config(kOperator, "data.classes has one word; a classifier needs at least two");
  if (d.numeric.empty() && d.categorical.empty() && d.private_bounds.empty() && d.hashed.empty())
    invalid_config(kOperator,
                   "data.numeric, data.categorical, data.hashed and data.private_bounds are all "
                   "empty; declare the feature columns, such as numeric: {{AGE: [0, 120]}}");
  for (const std::string& name : d.private_bounds)
    if (d.numeric.contains(name) || d.categorical.contains(name) || is_in(d.hashed, name) ||
        name == *d.label)
      invalid_config(
          kOperator,
          "data.private_bounds names {}, which is also declared elsewhere; keep one of them", name);
  for (const std::string& name : d.hashed)
    if (d.numeric.contains(name) || d.categorical.contains(name) || name == *d.label)
      invalid_config(kOperator,
                     "data.hashed names {}, which is also declared elsewhere; keep one of them",
                     name);
  for (const auto& [name, spellings] : d.map)
    if (!d.numeric.contains(name) && !d.categorical.contains(name) && !is_in(d.hashed, name) &&
        !is_in(d.private_bounds, name) && name != *d.label)
      invalid_config(kOperator,
                     "data.map names {}, a column that is not read; declare or remove it", name);
  if (std::set(d.header.begin(), d.header.end()).size() != d.header.size())
    invalid_config(kOperator, "data.header names a column twice; give each its own name");
}

void check_arrays(const DataConfig& d) {
  require(d.train_labels.has_value(), "train_labels", d.format, "name the file of the labels");
  if (d.test.has_value() != d.test_labels.has_value())
    invalid_config(kOperator, "data.{} is set without data.{}; set both or neither",
                   d.test ? "test" : "test_labels", d.test ? "test_labels" : "test");
  if (d.format != DataFormat::kNpy) return;
  require(d.class_count.has_value(), "class_count", d.format, "declare the number of classes");
  require(!d.bounds.empty(), "bounds", d.format,
          "declare [lower, upper] of the features from prior knowledge about them: the range or "
          "mean of the data would be an unaccounted release");
}

void set_image(Dataset& data, const std::vector<std::uint64_t>& image) {
  if (image.empty()) return;
  if (image[0] * image[1] != data.features)
    invalid_config(kOperator, "data.image is [{}, {}], but a record has {} features", image[0],
                   image[1], data.features);
  data.height = image[0];
  data.width = image[1];
}

// Moves the records that their coins hold out to a data set of their own. `data` keeps its memory.
Dataset hold_out(Dataset& data, double fraction, std::uint64_t seed) {
  const random::Key key = random::Key::from_seed(seed).derive("holdout");
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(fraction, 64));
  const auto bytes = [](const auto& values, std::size_t first, std::size_t n) {
    return ByteView(reinterpret_cast<const std::uint8_t*>(values.data() + first),
                    n * sizeof(values[0]));
  };
  const bool classifies = data.classes != 0;
  const auto is_held_out = [&](std::size_t row) {
    Sha256 hash;
    hash.update(key.secret_bytes());
    hash.update(bytes(data.x, row * data.features, data.features));
    hash.update(classifies ? bytes(data.label, row, 1) : bytes(data.target, row, 1));
    const Digest digest = hash.finish();
    std::uint64_t coin = 0;
    for (std::size_t k = 0; k < 8; ++k) coin = coin << 8 | digest[k];
    return coin < threshold;
  };
  Dataset out;
  out.features = data.features;
  out.height = data.height;
  out.width = data.width;
  out.classes = data.classes;
  out.feature_names = data.feature_names;
  out.class_names = data.class_names;
  std::size_t kept = 0;
  for (std::size_t row = 0; row < data.rows; ++row) {
    const auto begin = data.x.begin() + static_cast<std::ptrdiff_t>(row * data.features);
    const auto end = begin + static_cast<std::ptrdiff_t>(data.features);
    if (is_held_out(row)) {
      out.x.insert(out.x.end(), begin, end);
      if (classifies)
        out.label.push_back(data.label[row]);
      else
        out.target.push_back(data.target[row]);
      ++out.rows;
      continue;
    }
    if (kept != row) {
      std::copy(begin, end, data.x.begin() + static_cast<std::ptrdiff_t>(kept * data.features));
      if (classifies)
        data.label[kept] = data.label[row];
      else
        data.target[kept] = data.target[row];
    }
    ++kept;
  }
  data.rows = kept;
  data.x.resize(kept * data.features);
  if (classifies)
    data.label.resize(kept);
  else
    data.target.resize(kept);
  data.digest = digest_of(data);
  out.digest = digest_of(out);
  return out;
}

[[noreturn]] void refuse_empty(const std::string& source, const Dataset& data) {
  malformed(kOperator, "{} has no {}", source,
            data.skipped.empty() ? "records" : "readable record");
}

Dataset read_part(const DataConfig& d, const BoundsMap& released, const Table& table,
                  BadRow on_bad_row, bool needs_label = true) {
  CsvSchema schema = csv_schema(d, released);
  schema.needs_label = needs_label;
  Dataset out = read_table(table, schema, on_bad_row);
  set_image(out, d.image);
  if (out.rows == 0) refuse_empty("X", out);
  return out;
}

// One file, or pair of files, as the section says.
Dataset read_part(const DataConfig& d, const BoundsMap& released, const std::filesystem::path& file,
                  const std::optional<std::filesystem::path>& labels, BadRow on_bad_row,
                  bool needs_label = true) {
  Dataset out;
  switch (d.format) {
    case DataFormat::kDigits: break;  // has no file
    case DataFormat::kCsv: {
      CsvSchema schema = csv_schema(d, released);
      schema.needs_label = needs_label;
      out = read_csv(file, schema, on_bad_row);
      break;
    }
    case DataFormat::kIdx:
      out = read_idx(file, *labels, d.class_count.value_or(kIdxClasses));
      break;
    case DataFormat::kNpy:
      out = read_npy(file, {d.bounds[0], d.bounds[1]}, *labels, *d.class_count, on_bad_row);
      break;
  }
  set_image(out, d.image);
  if (out.rows == 0) refuse_empty(file.string(), out);
  return out;
}

}  // namespace

void check_data(const DataConfig& d, bool has_arrays) {
  check_keys_of_format(d);
  if (d.format == DataFormat::kDigits) return;
  require(d.train.has_value() || has_arrays, "train", d.format,
          "name the file of the training records, or pass arrays, as discreet.train(X, y) in "
          "Python does");
  if (d.test && d.holdout > 0)
    invalid_config(kOperator, "data.holdout has no effect with data.test; keep one of them");
  if (!d.image.empty() && d.image.size() != 2)
    invalid_config(kOperator, "data.image has {} numbers; expected [height, width]",
                   d.image.size());
  if (d.format == DataFormat::kCsv)
    check_csv(d);
  else
    check_arrays(d);
}

CsvSchema csv_schema(const DataConfig& d, const BoundsMap& released) {
  CsvSchema schema;
  for (const auto* map : {&d.numeric, &released})
    for (const auto& [name, bounds] : *map) schema.numeric[name] = {bounds.at(0), bounds.at(1)};
  for (const auto& [name, words] : d.categorical) {
    CategoricalColumn& column = schema.categorical[name];
    for (const std::string& word : words) {
      if (word == "*")
        column.other = true;
      else
        column.vocabulary.push_back(word);
    }
  }
  schema.label.name = d.label.value_or("");
  schema.label.classes = d.classes;
  if (!d.label_bounds.empty()) {
    schema.label.lower = d.label_bounds[0];
    schema.label.upper = d.label_bounds[1];
  }
  for (const std::string& name : d.hashed) schema.hashed[name] = d.hash_buckets;
  schema.format = {d.separator.at(0), d.trim, d.header, d.map, d.missing};
  return schema;
}

Data open_data(const Config& config, const std::filesystem::path& relative_to, BadRow on_bad_row,
               const random::Generator* bounds_noise, bool plan_only, const Arrays* arrays) {
  const DataConfig& d = config.data;
  check_data(d, arrays != nullptr);
  if (arrays != nullptr && (d.format != DataFormat::kCsv || d.train || d.test))
    invalid_config(kOperator,
                   "to train on arrays, data.format must be csv, without data.train and data.test: "
                   "the arrays are the records, and the section says how their columns are read");
  if (arrays != nullptr && !d.header.empty())
    invalid_config(kOperator, "data.header has no effect on arrays, whose columns have names");
  if (d.on_bad_row == BadRow::kSkip) on_bad_row = BadRow::kSkip;
  Data out;
  if (d.format == DataFormat::kDigits) {
    Digits digits = read_digits();
    out.train = std::move(digits.train);
    out.test = std::move(digits.test);
    return out;
  }
  const auto place = [&](const std::optional<std::string>& name) {
    return name ? std::optional(relative_to / *name) : std::nullopt;
  };
  const std::filesystem::path train = place(d.train).value_or("");
  const auto rows = [&] {
    const CsvFormat format = csv_schema(d, {}).format;
    return arrays != nullptr ? CsvRows(arrays->train, format) : CsvRows(train, format);
  };
  if (!d.private_bounds.empty()) {
    if (bounds_noise == nullptr && !plan_only)
      invalid_config(kOperator,
                     "data.private_bounds needs the secret noise of a run: training releases it; "
                     "or declare the bounds under data.numeric");
    std::vector<std::string> columns = d.private_bounds;
    std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    if (plan_only) {
      out.before.push_back(plan_csv_bounds(rows(), columns, d.private_bounds_noise,
                                           config.privacy.adjacency, on_bad_row));
      for (const std::string& name : columns) out.released_bounds[name] = {0, 1};
    } else {
      PrivateBounds bounds =
          release_csv_bounds(rows(), columns, d.private_bounds_noise, config.privacy.adjacency,
                             *bounds_noise, on_bad_row);
      out.before.push_back(std::move(bounds.release));
      for (const auto& [name, column] : bounds.bounds) {
        out.released_bounds[name] = {column.lower, column.upper};
        out.notes.push_back(
            fmt::format("released privately: {} in [{}, {}]", name, column.lower, column.upper));
      }
    }
  }
  if (arrays != nullptr) {
    out.train = read_part(d, out.released_bounds, arrays->train, on_bad_row);
    if (arrays->test && d.holdout > 0)
      invalid_config(kOperator,
                     "data.holdout and held-out records are both set; use only one of them");
    if (arrays->test) out.test = read_part(d, out.released_bounds, *arrays->test, on_bad_row);
  } else {
    out.train = read_part(d, out.released_bounds, train, place(d.train_labels), on_bad_row);
  }
  if (d.test)
    out.test = read_part(d, out.released_bounds, *place(d.test), place(d.test_labels), on_bad_row);
  if (d.holdout > 0) {
    out.test = hold_out(out.train, d.holdout, config.privacy.seed);
    out.notes.push_back(
        fmt::format("data.holdout {}: held-out records are not used for training; declared_size "
                    "counts only training records",
                    d.holdout));
    if (out.train.rows == 0 || out.test->rows == 0)
      malformed(kOperator,
                "data.holdout {} leaves no record to {}; provide more records, or set data.test to "
                "a file",
                d.holdout, out.train.rows == 0 ? "train on" : "test on");
  }
  return out;
}

namespace {

// The embedded digits as a CSV file has them.
DataConfig digits_as_csv() {
  DataConfig csv;
  csv.format = DataFormat::kCsv;
  csv.label = "label";
  csv.image = {8, 8};
  for (int digit = 0; digit < 10; ++digit) csv.classes.push_back(std::to_string(digit));
  for (int pixel = 0; pixel < 64; ++pixel)
    csv.numeric[fmt::format("p{}", pixel)] = {-16, 16};  // 0 is 0
  return csv;
}

}  // namespace

Dataset open_records(const DataConfig& d, const BoundsMap& released,
                     const std::filesystem::path& file, const std::filesystem::path& labels,
                     BadRow on_bad_row) {
  if (d.format != DataFormat::kDigits)
    return read_part(d, released, file, labels, on_bad_row, false);
  return read_part(digits_as_csv(), {}, file, {}, on_bad_row, false);
}

Dataset open_records(const DataConfig& d, const BoundsMap& released, const Table& table,
                     BadRow on_bad_row) {
  if (d.format == DataFormat::kDigits)
    return read_part(digits_as_csv(), {}, table, on_bad_row, false);
  if (d.format == DataFormat::kCsv) return read_part(d, released, table, on_bad_row, false);
  DataConfig csv = d;  // one pair of bounds for every column
  csv.label = "label";
  csv.classes = {"0", "1"};
  for (const Table::Column& column : table.columns)
    csv.numeric[column.name] =
        d.format == DataFormat::kNpy ? d.bounds : std::vector<double>{-255, 255};  // 0 is 0
  return read_part(csv, {}, table, on_bad_row, false);
}

}  // namespace discreet::data
