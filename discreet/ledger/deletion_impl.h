#pragma once

#include <nlohmann/json.hpp>

#include "discreet/ledger/entry.h"

// The receipt of a deletion beside its signed entry.
namespace discreet::ledger {

// What an entry says, in plain members for people: as they stand in a receipt.
nlohmann::json plain_members(const Deletion& deletion);

}  // namespace discreet::ledger
