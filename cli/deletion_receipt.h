#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "discreet/unlearning/service/service.h"

// The receipt of a deletion as JSON: the signed entry and receipt, and in plain members what they
// say, with the opening of the commitment. ledger::verify_proof() compares them.
namespace discreet::cli {

nlohmann::json deletion_receipt(const unlearning::DeletionReceipt& receipt,
                                const std::string& subject, const ledger::Ledger::Placed& placed,
                                const ledger::Ledger& ledger);

}  // namespace discreet::cli
