#pragma once

#include <string>
#include <vector>

namespace discreet::cli {

struct AccountRunsOptions {
  std::vector<std::string> runs;  // directories
  std::string delta;              // empty: the largest of the runs
  std::string group_size;         // empty: 1
  std::string plot;               // empty: none
  bool json = false;
};

// The epsilon of several runs together, if one record may be in the data of each: sequential
// composition of everything that their claims cover (report::Claim), which is releases before the
// first step, counts of adaptive clipping, released metrics and planned steps. Prints it beside
// that of each run alone. Throws kInvalidDpConfig, naming the run, if a run promises nothing, is
// not sealed, is given twice or has another adjacency; and as report::summarize() if it does not
// verify.
void account_runs(const AccountRunsOptions& options);

}  // namespace discreet::cli
