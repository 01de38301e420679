#pragma once

#include <string>
#include <vector>

#include "cli/options/command.h"
#include "discreet/unlearning/service/service.h"

namespace discreet::cli {

// Records from a file. CSV: a header line; the columns `subject` and `label` as named, every other
// column a feature, in the order of the header. JSON lines: {"subject": "a", "x": [1, 2], "y": 1}
// (anything whose name ends in .jsonl). Throws with file and line of what cannot be read.
// need_label: whether a label must be there; without one y is 0.
struct RowNames {
  std::string subject = "subject", label = "label";
  void add_options(Command& command);
};
std::vector<unlearning::Row> read_rows(const std::string& path, const RowNames& names,
                                       bool need_label = true);
// For a model with declared columns: a CSV file with these columns, and that of the subject.
std::vector<unlearning::Row> read_rows(const unlearning::Service& service, const std::string& path,
                                       const RowNames& names, bool need_label = true);

// One subject a line.
std::vector<std::string> read_subjects(const std::string& path);

}  // namespace discreet::cli
