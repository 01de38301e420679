#pragma once

#include <functional>

#include "discreet/unlearning/service/service.h"

// What a service does with its learner, whichever engine that is.
namespace discreet::unlearning {

using Learner = Service::Learner;

// The state without records, and back.
Bytes saved(const Learner& learner);
Learner restored_learner(ByteView state, NoiseSource noise);

std::size_t dimension_of(const Learner& learner);
std::uint64_t room_of(const Learner& learner);  // for how many records more

// Throws kInvalidInput for a record that the learner does not take.
void require_fits(const Learner& learner, std::span<const double> x, double y);
// calibration: of StreamOptions; the phases of a MemoryPair follow from it.
void add_record(Learner& learner, RecordId id, std::span<const double> x, double y,
                std::uint64_t calibration);
// After restored_learner: a record that its state has learned.
void put_back(Learner& learner, RecordId id, std::span<const double> x, double y);
// rows: features and label of each. False, and nothing has changed, if the budget does not reach.
bool remove_records(Learner& learner, std::span<const RecordId> ids,
                    std::span<const std::vector<double>> rows,
                    const std::function<NoiseSource(RecordId)>& noise);

struct Publication {
  Release release;
  bool ready = true;
};
Publication publication(Learner& learner);

// What every receipt of this model says: configuration only.
ledger::Deletion terms_of(const Learner& learner);
// Fills in what the learner knows of the status.
void describe(const Learner& learner, ServiceStatus& status);

}  // namespace discreet::unlearning
