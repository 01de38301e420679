#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/data/open.h"

namespace discreet::training {

// Settings that are proven private and yet unlikely to be meant, each as a sentence that says what
// is sensible. They follow from public values only.
//   parameters  number of trained parameters
//   steps       of the completed run
std::vector<std::string> advice(const Config& resolved, std::uint64_t parameters,
                                std::uint64_t steps);

// The same about the records that were read: confidential. rows: number of training records.
std::vector<std::string> confidential_advice(const Config& resolved, const data::Data& data,
                                             std::uint64_t rows);

// Rows that could not be read and were left out, in all files; confidential.
std::uint64_t skipped_rows(const data::Data& data);

}  // namespace discreet::training
