#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "discreet/ledger/ledger.h"
#include "discreet/unlearning/engines/erm_engine.h"
#include "discreet/unlearning/engines/exact_engine.h"
#include "discreet/unlearning/online/memory_pair.h"

namespace discreet::unlearning {

// The online learner behind a service: a MemoryPair that goes through its phases by itself.
struct StreamOptions {
  OdometerOptions odometer;         // finalized after the warm-up, for odometer.T events
  CalibratorOptions calibrator;     // used under the specification's accounting
  Loss loss = Loss::kSquared;       // certified modes take that of odometer.enforced
  std::size_t dimension = 1;        // certified modes: that of odometer.enforced
  std::uint64_t calibration = 500;  // inserts before finalize_calibration, >= 1
};

using EngineOptions = std::variant<ExactOptions, ErmOptions, StreamOptions>;

struct Row {
  std::string subject;  // whose record it is: 1 to 256 bytes of UTF-8
  std::vector<double> x;
  double y = 0;
};

// What a request to delete gives back. `entry` is signed in the ledger; salt and records open its
// commitment and are for who asked.
struct DeletionReceipt {
  ledger::Deletion entry;
  Bytes salt;
  std::vector<RecordId> records;
};

// SHA-256 of the CBOR of ["discreet-deletion-v1", salt, subject, [record, ...]].
Digest deletion_commitment(ByteView salt, std::string_view subject,
                           std::span<const RecordId> records);

struct ServiceStatus {
  std::string model, engine, guarantee;
  std::uint64_t live = 0, deletions = 0, generation = 0;
  std::uint64_t unconfirmed = 0;  // deletions whose receipt may not be in the ledger yet
  bool published = false;         // there is a model that `predict` serves
  std::optional<std::uint64_t> deletes_left;   // before the next one retrains (stream)
  std::optional<std::uint64_t> releases_left;  // before the next one retrains (erm)
  double eps_total = 0, delta_total = 0, eps_spent = 0;
  std::vector<std::string> warnings;
  Digest state{};                                     // confidential
  std::map<std::string, MemoryPair::Metric> metrics;  // of the specification (stream); confidential
};

// A model whose records can be deleted, over a file: what an operation reports is on the disk.
//
// - Each operation is one transaction of the store: spend, records, state and publication change
//   together, before anything of it is visible. When it throws, nothing has changed.
// - A request has a name. Given again with the same content it changes nothing and gives the same
//   answer; an insert that was cut off goes on where it was. With other content it is refused.
// - A delete removes the records from the store in the same transaction, then appends one entry to
//   the ledger for each subject: three commits in all. If the process dies before the entry is
//   signed, the next `confirm` writes it, once.
// - A deletion is never refused for want of budget: the model is then retrained from its public
//   beginning without the records, which opens a new generation with a new budget. Spends of a
//   transcript carry over.
// - `predict` serves the last publication. A delete replaces it at once (exact, stream) or takes it
//   back until the next `publish` (erm): nothing that knew the deleted record is served after it.
// The store holds the live records and a key of nothing: noise is drawn under a fresh key of the
// operating system in every process.
class Service {
 public:
  // Noise for the event of that name. Tests give a source of their own.
  using Noise = std::function<NoiseSource(std::string_view event)>;
  static Noise secure_noise();

  // A new file. model: its public name, 1 to 128 bytes. Throws kInvalidInput for options out of
  // range; there is then no file.
  static void create(const std::filesystem::path& path, const std::string& model,
                     const EngineOptions& options);
  // Opens it, and reads all records. Throws kIoError if another process has it, kMalformed if it is
  // no store.
  explicit Service(const std::filesystem::path& path, Noise noise = secure_noise());
  // The same, and compares it with its ledger's file, which is read and needs no key: kMalformed if
  // the ledger knows deletions that the store does not. Such a store is an old copy, in which
  // deleted records are back. Prefer this one wherever the ledger is at hand.
  Service(const std::filesystem::path& path, const std::filesystem::path& ledger,
          Noise noise = secure_noise());
  ~Service();
  Service(Service&&) noexcept;

  // Inserts the rows of a request: `rows` are all of them. Says how many were new. Throws
  // kInvalidInput for a row with another dimension, a value that is not finite, a label the loss
  // does not take, more rows than n_max allows, or, unless `reinsert` allows it, a subject that was
  // deleted: nothing is inserted then.
  enum class Reinsert { kRefuse, kAllow };
  std::uint64_t insert(std::string_view request, std::span<const Row> rows,
                       Reinsert reinsert = Reinsert::kRefuse);

  // Deletes all records of each subject, all or none, one receipt each. `withdrawal`: descriptor
  // whose withdrawal in the ledger asked for it. now: seconds since 1970. Throws kInvalidInput for
  // a subject without live records, named twice, or a withdrawal that is not in the ledger; nothing
  // is spent or changed then. If it throws kIoError because of the ledger, the records are deleted
  // and the receipt is pending: give the request again.
  std::vector<DeletionReceipt> erase(std::string_view request,
                                     std::span<const std::string> subjects, ledger::Ledger& ledger,
                                     std::uint64_t now,
                                     const std::optional<Digest>& withdrawal = {});

  // Puts receipts into the ledger that a killed process left out; says how many. Throws kMalformed
  // if the ledger knows deletions that the store does not: an old copy of the store.
  std::size_t confirm(ledger::Ledger& ledger);

  // Makes the present model the one that predictions are served from. ERM: one of a counted number
  // of releases, then a retrain; kPrivacyBudgetExceeded when a transcript's budget is used up.
  Release publish();

  // x'w of the last publication, and whether the regret target was met. Throws kInvalidInput if
  // nothing is published.
  Prediction predict(std::span<const double> x) const;

  // From the public beginning, over the live records in their order. A new generation.
  void retrain();

  ServiceStatus status() const;
  Digest state_digest() const;
  std::uint64_t commits() const noexcept;  // of the store, by this object

  using Learner = std::variant<ExactEngine, ErmEngine, MemoryPair>;
  const Learner& learner() const;  // confidential
  std::vector<Row> rows() const;   // the live records, ascending by id; confidential
  // The learner before its first record, as configured.
  Learner fresh(std::string_view event) const;
  // One insert, and the phases of a MemoryPair that follow from it.
  void learn(Learner& learner, RecordId id, std::span<const double> x, double y) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace discreet::unlearning
