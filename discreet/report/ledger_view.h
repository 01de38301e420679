#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/config/config.h"
#include "discreet/ledger/entry.h"

// What a page says of a ledger: leaves and notes, which are public by design (declared, scheduled
// and derived values; ledger/FORMAT.md). Descriptors, nonces and attestations, which the file also
// holds until they are summarised, are never read here.
namespace discreet::report {

// Tables have at most this many rows; the script of the page counts on it.
inline constexpr std::size_t kMostLedgerRows = 100;
// Ledgers with more bytes of leaves and notes are not put into a page: it would be slow to open,
// and a browser hashes some 20,000 leaves a second.
inline constexpr std::uint64_t kMostEmbeddedBytes = std::uint64_t{4} << 20;

struct LedgerView {
  ledger::Header header;
  std::uint64_t size = 0;   // leaves up to the last checkpoint
  std::uint64_t bytes = 0;  // of these leaves and of all notes
  std::uint64_t checkpoints = 0;
  std::string note;  // the last checkpoint

  struct Class {
    std::uint64_t contributions = 0, withdrawn = 0, uses = 0;
    std::uint64_t most_spent = 0;  // cumulative epsilon of one of them, millionths
    // In a ledger of schema 1, of one that was withdrawn: what all uses that it allowed would have
    // cost. most_spent is then of the others.
    std::uint64_t withdrawn_spent = 0;
  };
  std::map<std::string, Class> classes;  // of contributions still in the file
  std::map<std::string, std::uint64_t> refusals;

  struct Epoch {
    std::uint64_t position;  // of the terms
    ledger::Terms terms;
    std::uint64_t uses = 0;        // still in the file
    std::uint64_t most_spent = 0;  // of a contribution with it, millionths
  };
  template <class T>
  struct At {
    std::uint64_t position;
    T entry;
  };
  // The first kMostLedgerRows of each, and how many there are.
  std::vector<Epoch> epochs;
  std::vector<At<ledger::Withdrawal>> withdrawals;
  std::vector<At<ledger::Release>> releases;
  std::uint64_t all_epochs = 0, all_withdrawals = 0, all_releases = 0;
  std::uint64_t summarised = 0;                        // leaves without content
  std::vector<ledger::ClassTotal> summarised_classes;  // as the last summary says

  // For the script of the page, CBOR:
  //   ["discreet-ledger-page-v1", size, leaves, notes]
  // leaves: each its bytes, or [its hash] if summarised; of a ledger past kMostEmbeddedBytes the
  // header alone. notes: every signed note, ascending; of such a ledger the last alone.
  Bytes embedded;
  bool is_whole = false;  // whether `embedded` has all leaves
};

// Reads the leaves up to the last checkpoint, and verifies them as ledger::verify does, without
// attestations. last_seen: a note that the ledger must extend. Throws
//   kMalformed  if it does not verify, with the entry;
//   kIoError    if the file cannot be read.
LedgerView view_ledger(const std::filesystem::path& file,
                       const std::optional<std::string>& last_seen = {});

// Throws as view_ledger if the ledger does not extend the note, that of the run's seal.
void require_extends(const std::filesystem::path& file, const std::string& note);

// The ledger that a run wrote to, if it has one; and the note it kept of it, RUN/ledger.note, which
// a run of a corpus always has (kMalformed if it does not).
std::optional<std::filesystem::path> ledger_of(const std::filesystem::path& run,
                                               const Config& config);
std::optional<std::string> last_note_of(const std::filesystem::path& run, const Config& config);

}  // namespace discreet::report
