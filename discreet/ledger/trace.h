#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "discreet/ledger/entry.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/store.h"

namespace discreet::ledger {

// Everything the ledger says of one contribution: every run, epoch and release it touched, and what
// each cost it. Positions are those of leaves.
struct Trace {
  struct UseOf {
    std::uint64_t position;
    Terms terms;
    Use use;
  };
  template <class T>
  struct At {
    std::uint64_t position;
    T entry;
  };
  std::optional<At<Admission>> admission;  // none: never admitted, or summarised since
  std::vector<UseOf> uses;
  std::optional<At<Withdrawal>> withdrawal;
  std::vector<At<Release>> releases;  // of runs that had used it
  // Epsilon, millionths: that of the last use, which is of the plans of its runs. In a ledger of
  // schema 1, of a contribution that was withdrawn, what all uses that it allowed would have cost.
  std::uint64_t spend = 0;
  bool has_plans = true;  // of the ledger (schema 2)
};

// Reads the whole file; verify it first. Throws kMalformed for a file that does not verify anyway.
Trace trace(Store& store, const Digest& descriptor);

// All leaves of a file, for proofs of many of them.
Tree tree_of(Store& store);
// One leaf. Throws kInvalidInput if there is none, or only its hash is left.
Bytes leaf_at(Store& store, std::uint64_t position);

}  // namespace discreet::ledger
