// Tampered ledgers, manifests, bundles, receipts and proofs: none is accepted, unless a comparison
// that shares no code with the verifier shows that it says the same, or (bundles) less.
// DISCREET_TAMPERED: how many of each kind; the whole run is labelled slow.
#include <gtest/gtest.h>

#include <cstdlib>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/release/release_testing.h"
#include "tests/fuzz/edited_database.h"
#include "tests/fuzz/honest_ledger.h"
#include "tests/tamper/mutate_json.h"

namespace discreet {
namespace {

using namespace tamper;

int wanted() {
  const char* text = std::getenv("DISCREET_TAMPERED");
  return text ? std::atoi(text) : 400;
}

// Two ledgers of one key, for splices.
struct Honest {
  fuzz::HonestLedger ledger{0}, other{1};
};
const Honest& honest() {
  static const Honest h;
  return h;
}

struct Tally {
  int tampered = 0, same = 0, less = 0;
  ~Tally() {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::printf("%s: %d %s tampered, 0 accepted; %d more said the same, %d said less\n",
                name.c_str(), tampered, name.substr(0, name.find("Are")).c_str(), same, less);
  }
};

Bytes instruction(Random& random) {
  Bytes out;
  for (std::size_t n = 1 + below(random, 3); n > 0; --n) {
    const std::size_t length = below(random, 12);
    for (int i = 0; i < 5; ++i) out.push_back(static_cast<std::uint8_t>(random()));
    out.push_back(static_cast<std::uint8_t>(length));
    for (std::size_t i = 0; i < length; ++i) out.push_back(static_cast<std::uint8_t>(random()));
  }
  return out;
}

TEST(Tampered, LedgersAreNotAccepted) {
  const Bytes whole = honest().ledger.file.bytes(), other = honest().other.file.bytes();
  const fuzz::EditedDatabase database(whole);
  const Bytes rows = fuzz::EditedDatabase::rows_of(whole, "leaf");
  const fuzz::File file("tampered");
  ledger::VerifyOptions options;
  options.key = honest().ledger.key();
  options.checkpoint = honest().ledger.note;
  Random random(23);
  Tally tally;
  while (tally.tampered < wanted()) {
    Bytes altered;
    switch (below(random, 8)) {
      case 0: altered = database.with_row_of(other, random(), random() % 64); break;
      case 1: {  // pages of two files
        altered = whole;
        const std::size_t at = below(random, whole.size() / 4096) * 4096,
                          size = std::min(4096 * (1 + below(random, 3)), whole.size() - at);
        if (at + size <= other.size())
          std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(at), size,
                      altered.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      }
      default: altered = database.edited(instruction(random));
    }
    if (altered == whole) continue;
    file.put(altered);
    bool accepted = false;
    try {
      accepted = ledger::verify(file.path(), options).ok;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == ErrorCode::kMalformed || error.code() == ErrorCode::kIoError)
          << error.what();
    }
    if (!accepted) {
      ++tally.tampered;
      continue;
    }
    // Free space, padding of the header, or a row that was replaced by itself.
    ASSERT_EQ(fuzz::EditedDatabase::rows_of(altered, "leaf"), rows);
    ++tally.same;
  }
}

TEST(Tampered, ManifestsAreNotAccepted) {
  using namespace release;
  const auto signed_on = [](std::uint64_t day) {
    ReleaseTerms terms;
    terms.issued = day;
    return sign(draft(release::testing::facts(), terms, std::nullopt),
                release::testing::release_key());
  };
  const std::string whole = signed_on(release::testing::kToday),
                    second = signed_on(release::testing::kToday + 86400);
  const auto key = release::testing::release_key().public_key();
  const auto payload_of = [](const json& envelope) {
    const Bytes bytes = from_base64(envelope.at("payload").get<std::string>());
    return json::parse(bytes.begin(), bytes.end());
  };
  const json outer = json::parse(whole), outer2 = json::parse(second);
  const json inner = payload_of(outer), inner2 = payload_of(outer2);
  Random random(24);
  Tally tally;
  while (tally.tampered < wanted()) {
    std::string altered;
    switch (below(random, 4)) {
      case 0: altered = mutated_text(whole, random); break;
      case 1: altered = tamper::text_of(mutated(outer, outer2, random)) + "\n"; break;
      default: {
        json envelope = outer;
        const std::string payload = below(random, 3) == 0
                                        ? mutated_text(inner.dump(), random)
                                        : tamper::text_of(mutated(inner, inner2, random));
        envelope["payload"] = to_base64(bytes_of(payload));
        altered = envelope.dump() + "\n";
      }
    }
    if (altered == whole || altered == second) continue;
    ASSERT_FALSE(release::open(altered, key).manifest) << altered;
    const Gate gate(altered, release::testing::evidence());
    ASSERT_FALSE(gate.decide(release::testing::request("predict")).allowed()) << altered;
    ++tally.tampered;
  }
}

// Whether all that a bundle says stands in the honest one: for lists, the same parts in the same
// order, perhaps fewer. Members that nobody reads do not count, nor does the case of digits.
bool says_no_more(json found, const json& whole) {
  const auto lower = [](const json& of) {
    std::string text = of.dump();
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  for (const auto& [name, value] : whole.items()) {
    if (!found.contains(name)) return false;
    if (name != "uses" && name != "releases") {
      if (value.is_object()) {
        for (const char* part : {"leaf", "receipt"})
          if (lower(found[name][part]) != lower(value[part])) return false;
      } else if (name == "note" || name == "note_at_admission" || name == "origin") {
        if (found[name] != value) return false;
      } else if (lower(found[name]) != lower(value)) {
        return false;
      }
      continue;
    }
    auto at = value.begin();
    for (const json& item : found[name]) {
      const auto same = [&](const json& honest_item) {
        const auto parts = name == "uses" ? std::vector<std::string>{"/terms/leaf", "/use/leaf"}
                                          : std::vector<std::string>{"/leaf"};
        for (const std::string& part : parts) {
          const json::json_pointer p(part);
          if (!item.contains(p) || lower(item.at(p)) != lower(honest_item.at(p))) return false;
        }
        return true;
      };
      at = std::find_if(at, value.end(), same);
      if (at == value.end()) return false;
      ++at;
    }
  }
  return true;
}

TEST(Tampered, BundlesAreNotAccepted) {
  const json whole = json::parse(honest().ledger.bundle),
             other = json::parse(honest().other.bundle);
  const auto key = honest().ledger.key();
  Random random(25);
  Tally tally;
  while (tally.tampered < wanted()) {
    std::string altered;
    if (below(random, 5) == 0) {
      altered = mutated_text(honest().ledger.bundle, random);
    } else {
      altered = tamper::text_of(mutated(whole, other, random));
    }
    const json read = json::parse(altered, nullptr, false);
    if (read == whole || read == other) continue;
    if (!ledger::verify_bundle(altered, key).ok) {
      ++tally.tampered;
      continue;
    }
    ASSERT_TRUE(says_no_more(read, whole)) << altered;
    const bool less = read["uses"].size() < whole["uses"].size() ||
                      read["releases"].size() < whole["releases"].size();
    ++(less ? tally.less : tally.same);
  }
}

// Whether the receipt is the honest one of this leaf, in one of the two ledgers.
bool is_honest(const Bytes& receipt, const Bytes& leaf) {
  for (const auto* ledger : {&honest().ledger, &honest().other})
    for (std::size_t i = 0; i < ledger->leaves.size(); ++i)
      if (ledger->receipts[i] == receipt && ledger->leaves[i] == leaf) return true;
  return false;
}

TEST(Tampered, ReceiptsAreNotAccepted) {
  const auto& leaves = honest().ledger.leaves;
  const auto& receipts = honest().ledger.receipts;
  const auto key = honest().ledger.key();
  Random random(26);
  Tally tally;
  while (tally.tampered < wanted()) {
    const std::size_t i = below(random, receipts.size());
    const Bytes& mine = receipts[i];
    const auto& from = below(random, 2) == 0 ? receipts : honest().other.receipts;
    const Bytes& other = from[below(random, from.size())];
    std::string bytes(mine.begin(), mine.end());
    switch (below(random, 4)) {
      case 0: {  // a piece of another receipt, in the same place
        const std::size_t at = below(random, mine.size()),
                          size = 1 + below(random, std::min(mine.size() - at, std::size_t{80}));
        for (std::size_t n = at; n < at + size && n < other.size(); ++n)
          bytes[n] = static_cast<char>(other[n]);
        break;
      }
      case 1: {  // the parts of a COSE_Sign1: protected, unprotected, payload, signature
        std::vector<cbor::Value> parts = cbor::decode(mine).tag_content().as_array();
        const auto others = cbor::decode(other).tag_content().as_array();
        const std::size_t part = below(random, parts.size());
        parts[part] = others[below(random, 2) == 0 ? part : below(random, others.size())];
        const Bytes encoded = cbor::encode(cbor::tag(18, cbor::array(std::move(parts))));
        bytes.assign(encoded.begin(), encoded.end());
        break;
      }
      default: bytes = mutated_text(bytes, random);
    }
    const Bytes altered(bytes.begin(), bytes.end());
    if (altered == mine) continue;
    // Neither for its own leaf nor for any other, unless it is the honest receipt of that one.
    for (const std::size_t n : {i, below(random, leaves.size())}) {
      ASSERT_EQ(ledger::verify_inclusion_receipt(altered, leaves[n], key),
                is_honest(altered, leaves[n]))
          << to_hex(altered);
    }
    ++tally.tampered;
  }
}

TEST(Tampered, ProofsAreNotAccepted) {
  const json whole[] = {json::parse(honest().ledger.entry_proof),
                        json::parse(honest().ledger.consistency_proof)};
  const json other[] = {json::parse(honest().other.entry_proof),
                        json::parse(honest().other.consistency_proof)};
  const auto key = honest().ledger.key();
  Random random(27);
  Tally tally;
  while (tally.tampered < wanted()) {
    const std::size_t i = below(random, 2);
    const std::string altered = below(random, 4) == 0
                                    ? mutated_text(whole[i].dump(), random)
                                    : tamper::text_of(mutated(whole[i], other[i], random));
    const json read = json::parse(altered, nullptr, false);
    if (read == whole[i]) continue;
    ledger::ProofVerdict found;
    try {
      found = ledger::verify_proof(altered, key, honest().ledger.earlier);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidInput) << error.what();
    }
    if (!found.ok) {
      ++tally.tampered;
      continue;
    }
    // What it shows is so: of an entry, its place and bytes; of an extension, the sizes.
    if (found.entry) {
      ASSERT_TRUE(found.leaf ? *found.leaf == honest().ledger.leaves.at(*found.entry)
                             : *found.entry == 3)
          << altered;
    }
    if (found.from_size) {
      ASSERT_EQ(*found.from_size, whole[1].at("from_size").get<std::uint64_t>());
    }
    ASSERT_EQ(found.size, honest().ledger.leaves.size()) << altered;
    ++tally.same;
  }
}

}  // namespace
}  // namespace discreet
