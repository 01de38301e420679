#pragma once

#include <functional>

#include "discreet/unlearning/service/service.h"

// The operations of a service on its learner, for every engine.
namespace discreet::unlearning {

using Learner = Service::Learner;

// Saves and restores the state without records.
Bytes saved(const Learner& learner);
Learner restored_learner(ByteView state, NoiseSource noise);

std::size_t dimension_of(const Learner& learner);
std::uint64_t room_of(const Learner& learner);  // number of records that still fit

// The bounds of a record's norm and of its label; under the specification's accounting nothing is
// enforced, and they are those of the options.
double norm_bound(const Learner& learner);
double label_bound(const Learner& learner);
// z as the learner keeps it: moved inside its bounds. z: a finite vector of its dimension.
std::vector<double> bounded(const Learner& learner, std::span<const double> z);

// Throws kInvalidInput for a record that the learner rejects.
void require_fits(const Learner& learner, std::span<const double> x, double y);
// calibration: of StreamOptions; it determines the phases of a MemoryPair.
void add_record(Learner& learner, RecordId id, std::span<const double> x, double y,
                std::uint64_t calibration);
// After restored_learner: adds a record that its state has already learned.
void put_back(Learner& learner, RecordId id, std::span<const double> x, double y);
// rows: features and label of each. Returns false and changes nothing if the budget is
// insufficient.
bool remove_records(Learner& learner, std::span<const RecordId> ids,
                    std::span<const std::vector<double>> rows,
                    const std::function<NoiseSource(RecordId)>& noise);

struct Publication {
  Release release;
  bool ready = true;
};
Publication publication(Learner& learner);

// The content of every receipt of this model: configuration only.
ledger::Deletion terms_of(const Learner& learner);
// Fills in the part of the status that the learner knows.
void describe(const Learner& learner, ServiceStatus& status);

}  // namespace discreet::unlearning
