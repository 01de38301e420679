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
#include "discreet/unlearning/service/record_form.h"

namespace discreet::unlearning {

// The online learner of a service: a MemoryPair whose phases advance automatically.
struct StreamOptions {
  OdometerOptions odometer;         // finalized after the warm-up, for odometer.T events
  CalibratorOptions calibrator;     // used under the specification's accounting
  Loss loss = Loss::kSquared;       // certified modes use that of odometer.enforced
  std::size_t dimension = 1;        // certified modes: that of odometer.enforced
  std::uint64_t calibration = 500;  // inserts before finalize_calibration, >= 1
};

using EngineOptions = std::variant<ExactOptions, ErmOptions, StreamOptions>;

struct Row {
  std::string subject;  // whose record it is: 1 to 256 bytes of UTF-8
  std::vector<double> x;
  double y = 0;
};

// The result of a deletion request. The ledger signs `entry`. salt and records open the commitment
// in the entry; give them only to the requester.
struct DeletionReceipt {
  ledger::Deletion entry;
  Bytes salt;
  std::vector<RecordId> records;
};

struct ServiceStatus {
  std::string model, engine, guarantee;
  std::uint64_t live = 0, deletions = 0, generation = 0;
  std::uint64_t unconfirmed = 0;  // deletions whose receipt may not be in the ledger yet
  bool published = false;         // there is a model for `predict`
  std::optional<std::uint64_t> deletes_left;   // before the next one retrains (stream)
  std::optional<std::uint64_t> releases_left;  // before the next one retrains (erm)
  double eps_total = 0, delta_total = 0, eps_spent = 0;
  std::vector<std::string> warnings;
  Digest state{};                                     // confidential
  std::map<std::string, MemoryPair::Metric> metrics;  // of the specification (stream); confidential
};

// A model with deletable records in a file. Everything that an operation reports is on disk.
//
// - Each operation is one transaction of the store: spend, records, state and publication change
//   together, before any of it is visible. If it throws, nothing has changed.
// - A request has a name. If you repeat it with the same content, nothing changes and the answer is
//   the same; an interrupted insert continues. With other content it is rejected.
// - A delete removes the records from the store in the same transaction, then appends one entry to
//   the ledger for each subject: three commits in total. If the process dies before the entry is
//   signed, the next `confirm` writes it, once.
// - A deletion is never rejected for lack of budget. If the budget is exhausted, the model is
//   retrained from its public initial state without the records. This starts a new generation with
//   a new budget; the spend of a transcript carries over.
// - `predict` uses the last publication. A delete replaces it at once (exact, stream) or withdraws
//   it until the next `publish` (erm). No later answer comes from a model with the deleted record.
//
// The store contains the live records and no key. Every process draws noise under a fresh key from
// the operating system.
class Service {
 public:
  // The noise for the event of that name. Tests supply their own source.
  using Noise = std::function<NoiseSource(std::string_view event)>;
  static Noise secure_noise();

  // Creates a new file. model: its public name, 1 to 128 bytes. form: how rows become the vectors
  // of the engine, whose dimension is the number of features, plus one for the intercept. Throws
  // kInvalidInput for options out of range or another dimension; then no file is created.
  static void create(const std::filesystem::path& path, const std::string& model,
                     const EngineOptions& options, const RecordForm& form = {});
  // Opens the file and reads all records. Throws kIoError if another process has it open,
  // kMalformed if it is not a store.
  explicit Service(const std::filesystem::path& path, Noise noise = secure_noise());
  // The same, and compares the store with the file of its ledger, which can be read without a key.
  // Throws kMalformed if the ledger contains deletions that the store does not: such a store is an
  // old copy that contains deleted records again. Prefer this constructor whenever the ledger is
  // available.
  Service(const std::filesystem::path& path, const std::filesystem::path& ledger,
          Noise noise = secure_noise());
  ~Service();
  Service(Service&&) noexcept;

  // Inserts the rows of a request; `rows` are all rows of that request. Returns the number of new
  // rows. Throws kInvalidInput and inserts nothing for a row with a wrong dimension, a value that
  // is not finite, a label that the loss does not support, more rows than n_max allows, or a
  // deleted subject, unless `reinsert` allows it.
  enum class Reinsert { kRefuse, kAllow };
  std::uint64_t insert(std::string_view request, std::span<const Row> rows,
                       Reinsert reinsert = Reinsert::kRefuse);

  // The number of rows that lie outside the engine's bounds, which `insert` moves inside: x is
  // scaled to norm R, y is clamped to [-Y, Y]. Confidential. Throws as insert.
  struct Moved {
    std::uint64_t records = 0, labels = 0;
  };
  Moved moved(std::span<const Row> rows) const;

  // Whether a request of this name was made.
  bool knows(std::string_view request) const;

  // Deletes all records of the subjects: either of all subjects or of none. Returns one receipt for
  // each subject. withdrawal: the descriptor whose withdrawal in the ledger requested the deletion.
  // now: seconds since 1970. Throws kInvalidInput for a subject without live records or named
  // twice, or a withdrawal that is not in the ledger; nothing is spent or changed then. If it
  // throws kIoError because of the ledger, the records are deleted and the receipt is pending:
  // repeat the request.
  std::vector<DeletionReceipt> erase(std::string_view request,
                                     std::span<const std::string> subjects, ledger::Ledger& ledger,
                                     std::uint64_t now,
                                     const std::optional<Digest>& withdrawal = {});

  // Adds receipts to the ledger that a killed process left out; returns their number. Throws
  // kMalformed if the ledger contains deletions that the store does not, because the store is an
  // old copy.
  std::size_t confirm(ledger::Ledger& ledger);

  // Publishes the current model for predictions. ERM: uses one of a limited number of releases. If
  // none is left, it retrains first; under the transcript promise it throws kPrivacyBudgetExceeded
  // instead.
  Release publish();

  // The score z'w of the last publication, and whether the regret target was met. z is the vector
  // that the engine would learn for x. Throws kInvalidInput if nothing is published.
  Prediction predict(std::span<const double> x) const;

  // Retrains from the public initial state on the live records in their order. Starts a new
  // generation.
  void retrain();

  ServiceStatus status() const;
  Digest state_digest() const;
  std::uint64_t commits() const noexcept;  // of the store, by this object

  const RecordForm& form() const;
  std::size_t features() const;  // of a row
  double label_bound() const;    // the engine's Y

  using Learner = std::variant<ExactEngine, ErmEngine, MemoryPair>;
  const Learner& learner() const;  // confidential
  // The live records, ascending by id, with the vectors z of the form; confidential.
  std::vector<Row> rows() const;
  // z of a row's features; as_learned: moved inside the engine's bounds, too.
  std::vector<double> mapped(std::span<const double> x) const;
  std::vector<double> as_learned(std::span<const double> z) const;
  // The learner as configured, before its first record.
  Learner fresh(std::string_view event) const;
  // One insert, and the resulting changes of phase of a MemoryPair.
  void learn(Learner& learner, RecordId id, std::span<const double> x, double y) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace discreet::unlearning
