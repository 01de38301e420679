#include "discreet/ledger/proof.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/note.h"

namespace discreet::ledger {
namespace {

using namespace testing;
using nlohmann::json;

struct Example {
  Folder folder;
  std::string early, late;
  Example() {
    Ledger ledger =
        Ledger::create(folder / "ledger.db", header("rdp"), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 4));
    early = ledger.note();
    ledger.admit({{contribution(9, "public", kToday + 10)}});
    ledger.summarise(kToday + 1010);
    late = ledger.note();
  }
  std::filesystem::path path() const { return folder / "ledger.db"; }
  std::uint64_t size() const { return read_unverified(late).size; }
};

const admission::PublicKey kKey = ledger_key().public_key();

TEST(Proof, OfEveryEntryVerifiesWithoutTheLedger) {
  const Example example;
  int without_content = 0;
  for (std::uint64_t entry = 0; entry < example.size(); ++entry) {
    const ProofVerdict found = verify_proof(prove_entry(example.path(), entry), kKey);
    EXPECT_TRUE(found.ok) << found.problem;
    EXPECT_EQ(found.entry, entry);
    EXPECT_EQ(found.size, example.size());
    EXPECT_EQ(found.origin, header().origin);
    without_content += found.leaf ? 0 : 1;
  }
  EXPECT_EQ(without_content, 1);  // the one that was summarised
}

TEST(Proof, WithAnythingChangedDoesNotHold) {
  const Example example;
  const json honest = json::parse(prove_entry(example.path(), 3));
  const auto holds = [](const json& proof, const admission::PublicKey& key = kKey) {
    return verify_proof(proof.dump(), key).ok;
  };
  EXPECT_TRUE(holds(honest));
  EXPECT_FALSE(holds(honest, key(9).public_key()));
  json other = honest;
  other["entry"] = 4;
  EXPECT_FALSE(holds(other));
  other = honest;
  other["leaf"] = "00";
  EXPECT_FALSE(holds(other));
  other = honest;
  other["path"].erase(0);
  EXPECT_FALSE(holds(other));
  other = honest;
  other["path"][0] = std::string(64, '0');
  EXPECT_FALSE(holds(other));
  other = honest;
  other["note"] = example.early;
  EXPECT_FALSE(holds(other));
  other = honest;
  other.erase("leaf");  // the hash alone is still proven
  EXPECT_TRUE(holds(other));
}

TEST(Proof, OfConsistencyIsAboutTheNoteThatTheReaderKept) {
  const Example example;
  const std::uint64_t size = read_unverified(example.early).size;
  const std::string proof = prove_consistency(example.path(), size);
  EXPECT_TRUE(verify_proof(proof, kKey, example.early).ok);
  EXPECT_FALSE(verify_proof(proof, kKey, example.late).ok);
  const std::string fork =
      sign_note({header().origin, size, sha256(bytes_of("other"))}, ledger_key());
  EXPECT_FALSE(verify_proof(proof, kKey, fork).ok);
  const std::string elsewhere =
      sign_note({"other.example", size, read_unverified(example.early).root}, ledger_key());
  EXPECT_FALSE(verify_proof(proof, kKey, elsewhere).ok);
  EXPECT_THROW(static_cast<void>(verify_proof(proof, kKey)), Error);
  EXPECT_THROW(static_cast<void>(verify_proof(proof, kKey, "no note")), Error);
}

TEST(Proof, IsNotFoundInOtherTextsNorMadeOfWhatIsNotThere) {
  for (const char* text : {"", "{", "[]", "3", "null", "{}", "{\"note\":7}", "{\"note\":\"x\"}",
                           "{\"receipt\":\"00\"}", "{\"receipt\":\"zz\",\"leaf\":\"00\"}"})
    EXPECT_THROW(static_cast<void>(verify_proof(text, kKey)), Error) << text;
  EXPECT_FALSE(verify_proof("{\"receipt\":\"00\",\"leaf\":\"00\"}", kKey).ok);
  const Example example;
  for (const std::uint64_t entry : {example.size(), ~std::uint64_t{0}}) {
    EXPECT_THROW(static_cast<void>(prove_entry(example.path(), entry)), Error);
  }
  for (const std::uint64_t size : {std::uint64_t{0}, example.size() + 1}) {
    EXPECT_THROW(static_cast<void>(prove_consistency(example.path(), size)), Error);
  }
}

TEST(PublicKeyText, IsTakenInEveryForm) {
  const NoteKey named{header().origin, kKey};
  EXPECT_EQ(public_key_from_text(named.to_text() + "\n"), kKey);
  EXPECT_EQ(public_key_from_text(kKey.to_pem()), kKey);
  EXPECT_EQ(public_key_from_text(" " + to_hex(kKey.bytes()) + "\r\n"), kKey);
  for (const char* text : {"", " ", "+", "a+b", "00", "-----BEGIN PUBLIC KEY-----"})
    EXPECT_THROW(static_cast<void>(public_key_from_text(text)), Error) << text;
}

}  // namespace
}  // namespace discreet::ledger
