#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/release/draft.h"

namespace discreet::cli {

// The one place that reads a run directory for its release.
struct ReleaseInput {
  std::filesystem::path run;
  std::optional<std::filesystem::path> ledger;  // none: the one of the run
  std::vector<std::string> names;  // of the run in the ledger; none: as its trace and note say
  release::ReleaseTerms terms;
  std::filesystem::path out;                    // empty: RUN/release.json
  std::optional<std::filesystem::path> secret;  // the run's key; none: RUN/secret.key
  bool unsealed = false;  // sign although the seal is not verified; the manifest says so
};

struct Released {
  release::Manifest manifest;
  std::filesystem::path path;
  Digest hash{};                       // as the ledger records it
  std::optional<std::uint64_t> entry;  // of the ledger, the last one; none without ledger
};

// Signs the manifest of a run, records it in the ledger, then writes it; RUN/ledger.note becomes
// the note that covers the record. ledger_key: the ledger's; none: the one that the run's
// configuration names. Throws
//   kInvalidInput  for a run that has no claim (unfinished, failed, stopped, not private), no
//                  verified seal or no model, and for one of a corpus whose ledger or note is not
//                  there or not given;
//   kMalformed     if the trace, its seal, the model or the ledger is not what it should be;
//   and as release::draft.
Released release_run(const ReleaseInput& input, const admission::SigningKey& key,
                     std::optional<admission::SigningKey> ledger_key);

}  // namespace discreet::cli
