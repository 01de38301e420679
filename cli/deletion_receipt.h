#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "discreet/admission/ed25519.h"
#include "discreet/ledger/proof.h"
#include "discreet/unlearning/service/service.h"

// The receipt of a deletion as JSON: the signed entry and receipt, and in plain members what they
// say, with the opening of the commitment.
namespace discreet::cli {

nlohmann::json deletion_receipt(const unlearning::DeletionReceipt& receipt,
                                const std::string& subject, const ledger::Ledger::Placed& placed,
                                const ledger::Ledger& ledger);

// What the plain members of a line say that its signed entry does not, as a sentence; empty if
// nothing. found: of the line, verified. An opening that is none is such a difference.
std::string receipt_contradiction(const nlohmann::json& line, const ledger::ProofVerdict& found,
                                  const admission::PublicKey& key);

}  // namespace discreet::cli
