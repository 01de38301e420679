#include "discreet/ledger/proof.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/ledger/deletion_impl.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"

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

// With the leaf, without it, of a summarised leaf, and of consistency.
TEST(Proof, ThatSaysAnythingThatWasNotSignedDoesNotHold) {
  const Example example;
  const std::uint64_t early = read_unverified(example.early).size;
  std::vector<json> proofs = {json::parse(prove_entry(example.path(), 3)),
                              json::parse(prove_entry(example.path(), 3)),
                              json::parse(prove_consistency(example.path(), early))};
  proofs[1].erase("leaf");
  for (std::uint64_t entry = 0; entry < example.size(); ++entry)
    if (json summarised = json::parse(prove_entry(example.path(), entry));
        !summarised.contains("leaf"))
      proofs.push_back(std::move(summarised));
  ASSERT_EQ(proofs.size(), 4u);
  const json lies = {{"origin", "other.example"},
                     {"public_key", to_hex(key(9).public_key().bytes())},
                     {"tree_size", example.size() + 1},
                     {"leaf_hash", std::string(64, '0')},
                     {"epsilon", 9},
                     {"opening", json::object()},
                     {"verified", true}};
  for (json proof : proofs) {
    const auto found = [&] { return verify_proof(proof.dump(), kKey, example.early); };
    proof["origin"] = header().origin;
    proof["public_key"] = to_hex(kKey.bytes());
    EXPECT_TRUE(found().ok) << found().problem;
    const json honest = proof;
    for (const auto& [name, lie] : lies.items()) {
      proof = honest;
      proof[name] = lie;
      EXPECT_FALSE(found().ok) << name << proof;
      if (!honest.contains(name)) {
        EXPECT_NE(found().problem.find(name), std::string::npos) << found().problem;
      }
    }
  }
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

TEST(Proof, OfADeletionSaysInPlainMembersWhatWasSigned) {
  const Folder folder;
  Ledger ledger =
      Ledger::create(folder / "ledger.db", header("rdp"), bytes_of("policy"), ledger_key());
  Deletion deletion;
  deletion.model = "m";
  deletion.engine = "exact";
  deletion.promise = DeletionPromise::kExact;
  const std::vector<std::uint64_t> records = {1, 2};
  deletion.commitment = deletion_commitment(Bytes(32, 5), "alice", records);
  ledger.record_deletions({&deletion, 1});
  const Bytes leaf = encode(deletion);
  const auto placed = ledger.receipts({&leaf, 1}).at(0);
  json honest = plain_members(deletion);
  honest.update({{"origin", header().origin},
                 {"entry", placed.position},
                 {"leaf", to_hex(leaf)},
                 {"receipt", to_hex(placed.receipt)},
                 {"public_key", to_hex(kKey.bytes())},
                 {"opening", {{"salt", to_hex(Bytes(32, 5))}, {"subject", "alice"}}}});
  honest["opening"]["records"] = records;
  EXPECT_TRUE(verify_proof(honest.dump(), kKey).ok) << verify_proof(honest.dump(), kKey).problem;
  for (const auto& [name, value] : honest.items()) {
    json other = honest;
    if (value.is_string())
      other[name] = name == "leaf" || name == "receipt" ? "00" : value.get<std::string>() + "x";
    else if (value.is_number())
      other[name] = value.get<double>() + 1;
    else
      other[name] = json::object({{"subject", "bob"}});
    bool holds = false;
    try {
      holds = verify_proof(other.dump(), kKey).ok;
    } catch (const Error&) {
    }
    EXPECT_FALSE(holds) << name;
  }
  // A second member of the same name, which other readers may take.
  const std::string twice = R"({"epsilon":9,)" + honest.dump().substr(1);
  EXPECT_THROW(static_cast<void>(verify_proof(twice, kKey)), Error);
}

TEST(PublicKeyText, IsTakenInEveryForm) {
  const NoteKey named{header().origin, kKey};
  EXPECT_EQ(ledger_key_from_text(named.to_text() + "\n").key, kKey);
  EXPECT_EQ(ledger_key_from_text(kKey.to_pem()).key, kKey);
  EXPECT_EQ(ledger_key_from_text(" " + to_hex(kKey.bytes()) + "\r\n").key, kKey);
  for (const char* text : {"", " ", "+", "a+b", "00", "-----BEGIN PUBLIC KEY-----"})
    EXPECT_THROW(static_cast<void>(ledger_key_from_text(text)), Error) << text;
}

// One key may sign several ledgers: a name that comes with it is compared.
TEST(PublicKeyText, WithANameIsOfThatLedgerOnly) {
  const Example example;
  const LedgerKey ours = ledger_key_from_text(NoteKey{header().origin, kKey}.to_text());
  const LedgerKey other = ledger_key_from_text(NoteKey{"another.example", kKey}.to_text());
  const std::string proof = prove_entry(example.path(), 2);
  EXPECT_TRUE(verify_proof(proof, ours).ok);
  EXPECT_FALSE(verify_proof(proof, other).ok);
  VerifyOptions options;
  options.key = ours;
  EXPECT_TRUE(verify(example.path(), options).ok);
  options.key = other;
  EXPECT_FALSE(verify(example.path(), options).ok);
}

}  // namespace
}  // namespace discreet::ledger
