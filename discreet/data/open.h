#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/random/generator.h"

namespace discreet::data {

// The data named in the section `data` of a configuration.
struct Data {
  Dataset train;
  std::optional<Dataset> test;                  // no guarantee holds for its records
  std::vector<std::string> notes;               // sentences for the user; public
  BoundsMap released_bounds;                    // of data.private_bounds; public
  std::vector<mechanism::PriorRelease> before;  // earlier releases, for the run's Mechanism
};

// Checks that the section is complete and consistent, without opening files. has_arrays: the
// program holds the records, so that no file is named. Throws kInvalidDpConfig; the sentence starts
// with a key and says what to write.
void check_data(const DataConfig& data, bool has_arrays = false);

// Reads the data. relative_to: the folder of the configuration file, the base of relative names.
// bounds_noise: private_bounds_stream(), needed if data.private_bounds names columns.
//
// data.holdout: a record is held out if the SHA-256 of a public key (from privacy.seed) and of the
// bits of its features and label, as a fraction of 2^64, is below it. That depends only on the
// record itself, so adding or removing a record moves no other to the other side; equal records are
// on the same side.
//
// plan_only: nothing is released. Columns of data.private_bounds are read to check that they are
// readable, and get arbitrary bounds in the result.
//
// on_bad_row: rows are skipped if this or data.on_bad_row says so.
//
// arrays: records that the program holds, instead of files. The format is csv, which says how
// columns are read.
//
// Throws as check_data and the readers; kMalformed for a file without records.
Data open_data(const Config& config, const std::filesystem::path& relative_to,
               BadRow on_bad_row = BadRow::kRefuse, const random::Generator* bounds_noise = nullptr,
               bool plan_only = false, const Arrays* arrays = nullptr);

// Records for prediction, read as described in the section; `labels` and the label column may be
// missing. released: Data::released_bounds of the run. Throws as open_data; kInvalidInput for the
// format digits, which has no file.
Dataset open_records(const DataConfig& data, const BoundsMap& released,
                     const std::filesystem::path& file, const std::filesystem::path& labels,
                     BadRow on_bad_row = BadRow::kRefuse);

// The same for records in memory. The columns of idx and npy may have any names.
Dataset open_records(const DataConfig& data, const BoundsMap& released, const Table& table,
                     BadRow on_bad_row = BadRow::kRefuse);

// The schema for reading a CSV file of this configuration; released: Data::released_bounds.
CsvSchema csv_schema(const DataConfig& data, const BoundsMap& released);

}  // namespace discreet::data
