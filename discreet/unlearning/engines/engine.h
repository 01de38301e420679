#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"

namespace discreet::unlearning {

using RecordId = std::uint64_t;

// A model given to somebody outside.
struct Release {
  std::vector<double> parameters;
  double sigma = 0;           // standard deviation of the noise on each parameter
  double residual_bound = 0;  // configured, not measured: distance to the exact solution
  std::string guarantee;      // what the deleted are promised about it, in words
};

// Whether a saved state holds its records, or the caller keeps them and gives them back.
enum class Records { kInside, kLeftOut };

// A model from which records can be taken out again. Three kinds:
//   ExactEngine   integer statistics of ridge regression: the state after a delete is, bit for bit,
//                 that of never having inserted
//   ErmEngine     keeps the records; every release is certified close to the retrained model and
//                 noised
//   StreamEngine  keeps no records; a delete hides what is left of the record under noise
// Each operation is all or nothing: when it throws, nothing has changed and nothing is spent.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const noexcept = 0;  // "exact", "erm", "stream"
  virtual std::size_t dimension() const noexcept = 0;
  virtual std::uint64_t live() const noexcept = 0;  // records inserted and not deleted
  virtual bool holds(RecordId id) const noexcept = 0;

  // Throws kInvalidInput for an id that is live, a wrong dimension, or a value that is not finite.
  // A record beyond the engine's bounds is brought within them, as its header says.
  virtual void insert(RecordId id, std::span<const double> x, double y) = 0;

  // Deletes all or none. Throws kInvalidInput for an id that is not live or is named twice, and
  // for an empty batch; kPrivacyBudgetExceeded when the budget affords fewer: retrain.
  virtual void erase(std::span<const RecordId> ids) = 0;

  // Throws kPrivacyBudgetExceeded when releases are counted and none is left.
  virtual Release publish() = 0;

  // The state as deterministic CBOR, the same bytes for the same state; never the noise key.
  // Confidential. Each engine's `restore` takes it back, and throws kMalformed for other bytes.
  // kLeftOut: without the records and what follows from them alone; after restoring, the caller
  // inserts them again (exact, erm) or adopts them (stream).
  virtual Bytes save(Records records) const = 0;
};

}  // namespace discreet::unlearning
