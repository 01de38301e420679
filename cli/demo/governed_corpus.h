#pragma once

#include <filesystem>
#include <string>

#include "discreet/base/hash.h"

namespace discreet::cli {

// The corpus of the governed demo, in RUN/corpus: the embedded digits as lines of CSV files, a
// policy of three classes, a descriptor and an attestation for every line, and one more for each
// common reason of a rejection.
struct GovernedCorpus {
  std::filesystem::path folder;

  std::filesystem::path at(const char* name) const { return folder / name; }
  // Names of files in the folder.
  static constexpr const char* kConfig = "train.yaml";
  static constexpr const char* kSteward = "steward.key";    // signs the ledger
  static constexpr const char* kHospital = "hospital.key";  // attests the class clinical
  static constexpr const char* kLeaver = "leaver.txt";      // hash of the contribution that leaves
};

// Creates the files of a new run. Throws kInvalidInput if the folder above holds anything.
GovernedCorpus make_governed_corpus(const std::filesystem::path& run);

}  // namespace discreet::cli
