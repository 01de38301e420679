// Writes a small ledger and its keys into a folder, for the tests of the commands.
//   ledger_example FOLDER
// Keys: ledger, contributor, steward (.key and .pub). Notes: early.note, late.note. Prints the
// descriptors' hashes, one a line. old.db: a ledger whose retention horizon has passed for one of
// two contributions, each used once.
#include <cstdio>
#include <fstream>

#include "discreet/ledger/ledger_testing.h"

int main(int argc, char** argv) {
  using namespace discreet;
  using namespace discreet::ledger;
  using namespace discreet::ledger::testing;
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const auto keep = [&](const std::string& name, const admission::SigningKey& key) {
    put(name + ".key", key.to_pem());
    std::filesystem::permissions(folder / (name + ".key"), std::filesystem::perms(0600));
    put(name + ".pub", key.public_key().to_pem());
  };
  keep("ledger", ledger_key());
  keep("contributor", contributor_key());
  keep("steward", steward_key());
  keep("stranger", key(9));
  Ledger ledger = Ledger::create(folder / "ledger.db", header(), bytes_of("policy"), ledger_key());
  auto who = contributions(0, 6);
  who.push_back(contribution(6, "sensitive", kToday + 10));
  ledger.admit(who, {{{"EXPIRED", 2}}});
  put("early.note", ledger.note());
  ledger.reserve_epoch("run-1", 0, kToday, {terms(), terms("sensitive")});
  ledger.reserve_epoch("run-1", 1, kToday, {terms(), terms("sensitive")});
  ledger.release("run-1", sha256(bytes_of("manifest")));
  ledger.summarise(kToday + 1010);
  put("late.note", ledger.note());
  Ledger old = Ledger::create(folder / "old.db", header(), bytes_of("policy"), ledger_key());
  old.admit(std::vector{contribution(1, "public", 5000), contribution(2, "public", 0x7fffffff)});
  old.reserve_epoch("run-1", 0, 4000, {terms()});
  for (const auto& c : who) std::printf("%s\n", to_hex(hash_of(c)).c_str());
}
