#pragma once

#include <nlohmann/json.hpp>

#include "discreet/ledger/entry.h"

// The plain members of a deletion receipt, which stand beside its signed entry.
namespace discreet::ledger {

// The content of an entry as plain JSON members for people, as in a receipt.
nlohmann::json plain_members(const Deletion& deletion);

}  // namespace discreet::ledger
