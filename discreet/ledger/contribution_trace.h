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

// Everything the ledger records about one contribution: every run, epoch and release that it was
// part of, and the cost of each. Positions are those of leaves.
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
  std::optional<At<Admission>> admission;  // empty: never admitted, or summarised since
  std::vector<UseOf> uses;
  std::optional<At<Withdrawal>> withdrawal;
  std::vector<At<Release>> releases;  // of runs that had used it
  // Epsilon, millionths: the spend of the last use, which covers the plans of its runs. In a ledger
  // of schema 1, for a withdrawn contribution, the cost of all uses that it allowed.
  std::uint64_t spend = 0;
  bool has_plans = true;  // the ledger has plans (schema 2)
};

// Reads the whole file; verify it first. Throws kMalformed if it notices that the file does not
// verify.
Trace trace(Store& store, const Digest& descriptor);

// All leaves of a file, for many proofs.
Tree tree_of(Store& store);
// One leaf. Throws kInvalidInput if it does not exist, or if only its hash is left.
Bytes leaf_at(Store& store, std::uint64_t position);

}  // namespace discreet::ledger
