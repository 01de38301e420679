#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/random/generator.h"

namespace discreet::data {

// The data that the section `data` of a configuration names.
struct Data {
  Dataset train;
  std::optional<Dataset> test;                  // no guarantee holds for its records
  std::vector<std::string> notes;               // sentences for a person; public
  BoundsMap released_bounds;                    // of data.private_bounds; public
  std::vector<mechanism::PriorRelease> before;  // what was released: for the run's Mechanism
};

// Whether the section says enough, and nothing that contradicts itself; opens nothing. Throws
// kInvalidDpConfig; the sentence begins with a key and says what to write.
void check_data(const DataConfig& data);

// Reads the data. relative_to: the folder of the configuration file, where relative names begin.
// bounds_noise: private_bounds_stream(), needed if data.private_bounds names columns.
//
// data.holdout: a record is held out if SHA-256 of a public key (from privacy.seed) and of the bits
// of its features and label, as a fraction of 2^64, is below it. That depends on the record itself
// and on no other, so that one record more or less moves no other to the other side; equal records
// are on the same side.
//
// plan_only: nothing is released. Columns of data.private_bounds are read, to see that they can be,
// and stand in `out` with arbitrary bounds.
//
// Throws as check_data and the readers; kMalformed for a file without records.
Data open_data(const Config& config, const std::filesystem::path& relative_to,
               BadRow on_bad_row = BadRow::kRefuse, const random::Generator* bounds_noise = nullptr,
               bool plan_only = false);

// Records to predict, as the section says records are read; `labels` may be missing, and the column
// of the labels too. released: Data::released_bounds of the run. Throws as open_data; kInvalidInput
// for the format digits, which has no file.
Dataset open_records(const DataConfig& data, const BoundsMap& released,
                     const std::filesystem::path& file, const std::filesystem::path& labels,
                     BadRow on_bad_row = BadRow::kRefuse);

// How a CSV file of this configuration is read; released: Data::released_bounds.
CsvSchema csv_schema(const DataConfig& data, const BoundsMap& released);

}  // namespace discreet::data
