#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"

namespace discreet::unlearning {

using RecordId = std::uint64_t;

// A model for release.
struct Release {
  std::vector<double> parameters;
  double sigma = 0;           // standard deviation of the noise on each parameter
  double residual_bound = 0;  // configured, not measured: distance to the exact solution
  std::string guarantee;      // the promise to deleted records, in words
};

// Whether a saved state contains its records, or the caller stores them and supplies them again.
enum class Records { kInside, kLeftOut };

// A model that supports deleting records. Three kinds:
//   ExactEngine   integer statistics of ridge regression: the state after a delete is, bit for bit,
//                 the state without the record
//   ErmEngine     keeps the records; every release is certified to be close to the retrained model
//                 and noised
//   StreamEngine  keeps no records; a delete hides the remaining influence of the record under
//                 noise
// Each operation is all or nothing: if it throws, nothing has changed and nothing is spent.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const noexcept = 0;  // "exact", "erm", "stream"
  virtual std::size_t dimension() const noexcept = 0;
  virtual std::uint64_t live() const noexcept = 0;  // records inserted and not deleted
  virtual bool holds(RecordId id) const noexcept = 0;

  // Throws kInvalidInput for an id that is live, a wrong dimension, or a value that is not finite.
  // A record outside the engine's bounds is moved inside, as its header describes.
  virtual void insert(RecordId id, std::span<const double> x, double y) = 0;

  // Deletes all or none. Throws kInvalidInput for an id that is not live or named twice, and for an
  // empty batch; kPrivacyBudgetExceeded if the budget allows fewer: then retrain.
  virtual void erase(std::span<const RecordId> ids) = 0;

  // Throws kPrivacyBudgetExceeded if the number of releases is limited and none is left.
  virtual Release publish() = 0;

  // The state as deterministic CBOR: equal states have equal bytes; it never contains the noise
  // key. Confidential. Each engine's `restore` reads it and throws kMalformed for other bytes.
  // kLeftOut: without the records and everything derived from them alone; after restoring, the
  // caller inserts them again (exact, erm) or adopts them (stream).
  virtual Bytes save(Records records) const = 0;
};

}  // namespace discreet::unlearning
