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

// The content of a ledger for a page: leaves and notes, which are public by design (declared,
// scheduled and derived values; ledger/FORMAT.md). Descriptors, nonces and attestations, which the
// file also contains until they are summarised, are never read here.
namespace discreet::report {

// The maximum number of rows of a table; the script of the page relies on it.
inline constexpr std::size_t kMostLedgerRows = 100;
// Ledgers with more bytes of leaves and notes are not embedded in a page: it would be slow to open,
// and a browser hashes about 20,000 leaves per second.
inline constexpr std::uint64_t kMostEmbeddedBytes = std::uint64_t{4} << 20;

struct LedgerView {
  ledger::Header header;
  std::uint64_t size = 0;   // leaves up to the last checkpoint
  std::uint64_t bytes = 0;  // of these leaves and of all notes
  std::uint64_t checkpoints = 0;
  std::string note;  // the last checkpoint

  struct Class {
    std::uint64_t contributions = 0, withdrawn = 0, uses = 0;
    std::uint64_t most_spent = 0;  // largest cumulative epsilon of one of them, millionths
    // In a ledger of schema 1, for withdrawn contributions: the cost of all uses that one allowed.
    // most_spent then covers only the others.
    std::uint64_t withdrawn_spent = 0;
  };
  std::map<std::string, Class> classes;  // of contributions still in the file
  std::map<std::string, std::uint64_t> refusals;

  // The epochs of one run and class under the same noise, sampler and plan.
  struct Epochs {
    std::uint64_t position;        // position of their first terms
    ledger::Terms terms;           // the first
    std::uint64_t last_epoch = 0;  // the last
    std::uint64_t last_as_of = 0;  // of the last
    std::uint64_t steps = 0;       // of all of them
    std::uint64_t most_uses = 0;   // largest number of contributions of one, still in the file
    std::uint64_t most_spent = 0;  // of one of its contributions, millionths
  };
  template <class T>
  struct At {
    std::uint64_t position;
    T entry;
  };
  // The first kMostLedgerRows of each, and their total number.
  std::vector<Epochs> epochs;
  std::vector<At<ledger::Withdrawal>> withdrawals;
  std::vector<At<ledger::Release>> releases;
  std::uint64_t all_epochs = 0, all_withdrawals = 0, all_releases = 0;
  std::uint64_t summarised = 0;                        // number of leaves without content
  std::vector<ledger::ClassTotal> summarised_classes;  // from the last summary

  // For the script of the page, CBOR:
  //   ["discreet-ledger-page-v1", size, leaves, notes]
  // leaves: the bytes of each, or [its hash] if summarised; for a ledger beyond kMostEmbeddedBytes,
  // only the header. notes: every signed note, ascending; for such a ledger, only the last.
  Bytes embedded;
  bool is_whole = false;  // `embedded` contains all leaves
};

// Reads the leaves up to the last checkpoint and verifies them as ledger::verify does, except
// attestations. last_seen: a note that the ledger must extend. Throws
//   kMalformed  if it does not verify, with the entry;
//   kIoError    if the file cannot be read.
LedgerView view_ledger(const std::filesystem::path& file,
                       const std::optional<std::string>& last_seen = {});

// Throws as view_ledger if the ledger does not extend the note of the run's seal.
void require_extends(const std::filesystem::path& file, const std::string& note);

// The ledger to which a run wrote, if any; and the note of it that the run kept, RUN/ledger.note,
// which every run of a corpus has (kMalformed if it is missing).
std::optional<std::filesystem::path> ledger_of(const std::filesystem::path& run,
                                               const Config& config);
std::optional<std::string> last_note_of(const std::filesystem::path& run, const Config& config);

}  // namespace discreet::report
