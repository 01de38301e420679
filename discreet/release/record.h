#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/ledger/state.h"
#include "discreet/ledger/store.h"
#include "discreet/release/manifest.h"

namespace discreet::release {

// What a ledger records about one run, under all its names: the part of a manifest that anyone with
// the ledger can reproduce.
struct RunRecord {
  std::vector<Posture> postures;  // of the first `size` entries; ascending by class

  // The parameters that a class may have reached, according to the epochs' terms.
  struct Route {
    std::string admissibility_class;
    Bytes profile;        // ledger::Terms::profile
    std::string adapter;  // named by its contributions; empty: none
    friend auto operator<=>(const Route&, const Route&) = default;
  };
  std::vector<Route> routes;  // ascending, unique

  // True if the ledger contains the plans of its runs: spends then do not depend on when a run
  // stopped.
  bool has_plans = true;
  // Number of entries of the run's epochs with only the hash left: the postures are then
  // incomplete.
  std::uint64_t summarised = 0;
  // The position of the first withdrawal after `size` entries of a contribution that the run had
  // used. If entries were summarised, also of a contribution that the run may have used.
  std::optional<std::uint64_t> withdrawn_at;
  // The position of the release with this manifest, under the last of the names; empty unless it is
  // recorded under all names.
  std::optional<std::uint64_t> released_at;
};

// Reads the whole ledger. The caller must have verified it in the same snapshot (ledger::load),
// with `state` as the result. manifest: the hash of the manifest whose release is looked up.
RunRecord record_of(ledger::Store& store, const ledger::State& state,
                    const std::vector<std::string>& runs, std::uint64_t size,
                    const std::optional<Digest>& manifest = {});

}  // namespace discreet::release
