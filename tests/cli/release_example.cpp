// Writes the ledger of a corpus whose run is "run-1", and its keys, for the tests of the commands.
//   release_example FOLDER
// Keys: ledger, release, contributor, stranger (.key and .pub). ledger.note: as the run would keep
// it. Class `public` may reach the whole model, `clinical` its upper half; one contribution of
// `clinical` is withdrawn between two epochs. Prints the descriptors' hashes, one a line.
#include <cstdio>
#include <fstream>

#include "discreet/release/release_testing.h"

int main(int argc, char** argv) {
  using namespace discreet;
  using namespace discreet::release::testing;
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const auto keep = [&](const std::string& name, const admission::SigningKey& signer) {
    put(name + ".key", signer.to_pem());
    std::filesystem::permissions(folder / (name + ".key"), std::filesystem::perms(0600));
    put(name + ".pub", signer.public_key().to_pem());
  };
  keep("ledger", ledger_key());
  keep("release", release_key());
  keep("contributor", contributor_key());
  keep("stranger", key(9));
  auto ledger =
      ledger::Ledger::create(folder / "ledger.db", header(), bytes_of("policy"), ledger_key());
  auto who = contributions(0, 4, "public");
  for (auto& c : contributions(4, 7, "clinical")) who.push_back(c);
  ledger.admit(who);
  const std::vector<ledger::Terms> epoch = {
      terms_of("public", profile(cbor::array({"whole"}))),
      terms_of("clinical", profile(cbor::array({"depth", 500'000'000, 1'000'000'000})))};
  ledger.reserve_epoch("run-1", 0, kToday, epoch);
  const ledger::Withdrawal gone[] = {withdrawal(hash_of(who[4]), contributor_key())};
  ledger.withdraw(gone);
  ledger.reserve_epoch("run-1", 1, kToday, epoch);
  put("ledger.note", ledger.note());
  for (const auto& c : who) std::printf("%s\n", to_hex(hash_of(c)).c_str());
}
