#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/ledger/state.h"
#include "discreet/ledger/store.h"
#include "discreet/release/manifest.h"

namespace discreet::release {

// What a ledger says of one run, under all its names: the part of a manifest that whoever has the
// ledger can make again.
struct RunRecord {
  std::vector<Posture> postures;  // of the first `size` entries; ascending by class

  // Where a class may have gone, as the epochs' terms say it.
  struct Route {
    std::string admissibility_class;
    Bytes profile;        // ledger::Terms::profile
    std::string adapter;  // that its contributions name; empty: none
    friend auto operator<=>(const Route&, const Route&) = default;
  };
  std::vector<Route> routes;  // ascending, none twice

  // Whether the ledger has what its runs planned: spends then do not depend on when one stopped.
  bool has_plans = true;
  // Entries of the run's epochs of which only the hash is left: the postures then lack something.
  std::uint64_t summarised = 0;
  // The first withdrawal after `size` entries of a contribution that the run had used before; where
  // entries were summarised, of one of which that cannot be excluded.
  std::optional<std::uint64_t> withdrawn_at;
  // Where the release with this manifest is recorded, under the last of the names; none unless it
  // is under all.
  std::optional<std::uint64_t> released_at;
};

// Reads the whole ledger, which must have been verified (ledger::load) in the same snapshot: state
// is what that gave. manifest: the hash whose release to look for.
RunRecord record_of(ledger::Store& store, const ledger::State& state,
                    const std::vector<std::string>& runs, std::uint64_t size,
                    const std::optional<Digest>& manifest = {});

}  // namespace discreet::release
