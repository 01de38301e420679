#include "cli/deletion_receipt.h"

#include "discreet/ledger/deletion_impl.h"

namespace discreet::cli {

using nlohmann::json;

json deletion_receipt(const unlearning::DeletionReceipt& receipt, const std::string& subject,
                      const ledger::Ledger::Placed& placed, const ledger::Ledger& ledger) {
  json out = ledger::plain_members(receipt.entry);
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

}  // namespace discreet::cli
