#pragma once

#include <map>
#include <set>

#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/proof.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/verify.h"
#include "discreet/ledger/withdrawal.h"
#include "tests/fuzz/file.h"

namespace fuzz {

// A small ledger with an entry of nearly every kind, and everything that is made from one: what
// forgeries of them are compared with. Nothing else in a fuzzer is signed by its key.
struct HonestLedger {
  File file;
  std::string earlier, note, bundle, entry_proof, consistency_proof;
  std::vector<discreet::Bytes> leaves, receipts;  // in the order of the ledger

  // Ledgers of other numbers have other contributions, and the same origin and key.
  explicit HonestLedger(std::uint32_t number = 0)
      : file("honest-" + std::to_string(number)), number_(number) {
    using namespace discreet::ledger;
    using namespace discreet::ledger::testing;
    {
      Ledger ledger =
          Ledger::create(file.path(), header(), discreet::bytes_of("policy"), ledger_key());
      const std::uint32_t first = 100 * number;
      ledger.admit(contributions(first, first + 2, "sensitive", kToday + 10), {{{"EXPIRED", 2}}});
      ledger.admit(contributions(first + 2, first + 4));
      earlier = ledger.note();
      ledger.reserve_epoch("run", 0, kToday, {terms("sensitive"), terms("public")});
      ledger.reserve_epoch("run", 1, kToday + 20, {terms("public")});
      ledger.release("run", discreet::sha256(discreet::bytes_of("a manifest")));
      ledger.withdraw(std::vector{withdrawal(withdrawn(), contributor_key())});
      note = ledger.note();
      Store store(file.path(), Store::Mode::kRead);
      Store::Leaves all(store, 0);
      for (Store::Leaf leaf; all.next(leaf);)
        leaves.emplace_back(leaf.content.begin(), leaf.content.end());
      for (const auto& placed : ledger.receipts(leaves)) receipts.push_back(placed.receipt);
    }
    bundle = withdrawal_bundle(file.path(), ledger_key(), withdrawn());
    entry_proof = prove_entry(file.path(), 3);
    consistency_proof = prove_consistency(file.path(), read_unverified(earlier).size);
  }

  discreet::Digest withdrawn() const {
    using namespace discreet::ledger::testing;
    return hash_of(contribution(100 * number_ + 2));
  }
  static discreet::admission::PublicKey key() {
    return discreet::ledger::testing::ledger_key().public_key();
  }

 private:
  std::uint32_t number_;
};

}  // namespace fuzz
