#include "cli/deletion_receipt.h"

#include <fmt/core.h>

#include "discreet/base/error.h"
#include "discreet/ledger/entry.h"
#include "discreet/ledger/merkle.h"

namespace discreet::cli {
namespace {

using nlohmann::json;

// In plain members, for people.
json members_of(const ledger::Deletion& e) {
  return {{"model", e.model},
          {"deletion", e.number},
          {"time", e.time},
          {"engine", e.engine},
          {"guarantee", std::string(ledger::describe(e).at("promise").as_text())},
          {"epsilon", static_cast<double>(e.epsilon) / ledger::kMicro},
          {"delta", static_cast<double>(e.delta) / ledger::kAtto},
          {"residual_bound", static_cast<double>(e.residual) / ledger::kAtto},
          {"generation", e.generation},
          {"withdrawal", e.withdrawal ? json(*e.withdrawal) : json()},
          {"commitment", to_hex(e.commitment)}};
}

bool opens(const json& opening, const Digest& commitment) try {
  const auto records = opening.at("records").get<std::vector<unlearning::RecordId>>();
  return opening.size() == 3 && json(records) == opening.at("records") &&
         unlearning::deletion_commitment(from_hex(opening.at("salt").get<std::string>()),
                                         opening.at("subject").get<std::string>(),
                                         records) == commitment;
} catch (const json::exception&) {
  return false;
} catch (const Error&) {
  return false;
}

}  // namespace

json deletion_receipt(const unlearning::DeletionReceipt& receipt, const std::string& subject,
                      const ledger::Ledger::Placed& placed, const ledger::Ledger& ledger) {
  json out = members_of(receipt.entry);
  out.update(
      {{"origin", ledger.state().header().origin},
       {"entry", placed.position},
       {"leaf", to_hex(ledger::encode(receipt.entry))},
       {"receipt", to_hex(placed.receipt)},
       {"public_key", to_hex(ledger.state().header().key)},
       {"opening",
        {{"salt", to_hex(receipt.salt)}, {"subject", subject}, {"records", receipt.records}}}});
  return out;
}

std::string receipt_contradiction(const json& line, const ledger::ProofVerdict& found,
                                  const admission::PublicKey& key) {
  if (!found.leaf) return {};
  json signed_members = {{"public_key", to_hex(key.bytes())},
                         {"leaf_hash", to_hex(ledger::leaf_hash(*found.leaf))}};
  if (!found.origin.empty()) signed_members["origin"] = found.origin;
  const ledger::Entry entry = ledger::decode_entry(*found.leaf);
  const auto* deletion = std::get_if<ledger::Deletion>(&entry);
  if (deletion != nullptr) signed_members.update(members_of(*deletion));
  for (const auto& [name, value] : signed_members.items())
    if (line.contains(name) && line.at(name) != value)
      return fmt::format("{} is {}, and what was signed is {}", name, line.at(name).dump(),
                         value.dump());
  if (deletion != nullptr && line.contains("opening") &&
      !opens(line.at("opening"), deletion->commitment))
    return "the opening (salt, subject and records) is not that of the signed commitment";
  return {};
}

}  // namespace discreet::cli
