#include "discreet/release/manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/release/envelope.h"
#include "discreet/release/release_testing.h"

namespace discreet::release {
namespace {

using namespace testing;
using nlohmann::json;

Manifest manifest() {
  static const Corpus corpus;
  return draft(facts(), release_terms(), corpus.at());
}

bool refused(std::string_view statement) {
  try {
    static_cast<void>(decode_statement(statement));
  } catch (const Error& error) {
    return error.code() == ErrorCode::kMalformed;
  }
  return false;
}

TEST(Manifest, HasOneTextThatReadsBack) {
  const std::string text = encode(manifest());
  EXPECT_EQ(decode_statement(text), manifest());
  EXPECT_EQ(encode(decode_statement(text)), text);
  EXPECT_TRUE(refused(text + "\n"));
  EXPECT_TRUE(refused(" " + text));
  EXPECT_TRUE(refused(json::parse(text).dump(1)));
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("null"));
  EXPECT_TRUE(refused("[]"));
  EXPECT_TRUE(refused(std::string(kMostStatementBytes + 1, ' ')));
  EXPECT_TRUE(refused(std::string(100'000, '[')));
}

TEST(Manifest, IsAnInTotoStatementAboutTheModelFiles) {
  const json s = json::parse(encode(manifest()));
  EXPECT_EQ(s.at("_type"), "https://in-toto.io/Statement/v1");
  EXPECT_EQ(s.at("predicateType"), "https://discreet/release/v1");
  EXPECT_EQ(s.at("subject").at(0).at("name"), "model.safetensors");
  EXPECT_EQ(s.at("subject").at(0).at("digest").at("sha256"), to_hex(model_digest()));
}

// Every member, at any depth: removed, given another type, doubled; and an unknown member added.
TEST(Manifest, RefusesEveryMissingForeignAndMistypedMember) {
  const json good = json::parse(encode(manifest()));
  int cases = 0;
  const std::function<void(const json::json_pointer&)> visit = [&](const json::json_pointer& at) {
    const json& here = good.at(at);
    for (const auto& [name, value] : here.items()) {
      const json::json_pointer member = here.is_array() ? at / std::stoul(name) : at / name;
      if (here.is_object()) {
        json without = good;
        without.at(at).erase(name);
        EXPECT_TRUE(refused(without.dump())) << "without " << member.to_string();
        json other = good;
        other[member] = value.is_object() ? json(1) : json::object();
        EXPECT_TRUE(refused(other.dump())) << "another type at " << member.to_string();
        cases += 2;
      }
      if (value.is_structured()) visit(member);
    }
    if (here.is_object()) {
      json more = good;
      more.at(at)["stranger"] = 1;
      EXPECT_TRUE(refused(more.dump())) << "a stranger in " << at.to_string();
      ++cases;
    }
  };
  visit(json::json_pointer());
  EXPECT_GT(cases, 100);
}

TEST(Manifest, RefusesNumbersAndNamesThatHaveTwoSpellings) {
  const std::string text = encode(manifest());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const auto at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return out.replace(at, from.size(), to);
  };
  EXPECT_TRUE(refused(with("\"max_age\":1000", "\"max_age\":1e3")));
  EXPECT_TRUE(refused(with("\"max_age\":1000", "\"max_age\":1000.0")));
  EXPECT_TRUE(refused(with("\"max_age\":1000", "\"max_age\":-1000")));
  EXPECT_TRUE(refused(with("\"max_age\":1000", "\"max_age\":1000,\"max_age\":1000")));
  EXPECT_TRUE(refused(with("\"layer0\"", "\"\\u006cayer0\"")));
  const std::string hex = to_hex(model_digest());
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_TRUE(refused(with(hex, upper)));
  EXPECT_FALSE(refused(text));
}

TEST(Manifest, CannotSayWhatCannotBe) {
  const auto invalid = [](const auto& change) {
    Manifest m = manifest();
    change(m);
    try {
      static_cast<void>(encode(m));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidInput || error.code() == ErrorCode::kMalformed;
    }
    return false;
  };
  EXPECT_TRUE(invalid([](Manifest& m) { m.runs.clear(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.runs = {"a\nb"}; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.runs = {"\xff"}; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.runs = {std::string(257, 'a')}; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.model.clear(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.model[0].name = "../model"; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.max_age = 0; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.issued = ~std::uint64_t{0}; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.ledger.reset(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.ledger->key[0] ^= 1; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.ledger->note += "x"; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.ledger->delta = 0; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.postures.clear(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.postures[0].admissibility_class = kUnattested; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.postures[0].withdrawn = 4; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.postures[0].contributions = 0; }));
  EXPECT_TRUE(invalid([](Manifest& m) { std::swap(m.postures[0], m.postures[1]); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.layers[0].classes = {"nobody"}; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.layers[1].name = m.layers[0].name; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.adapters[0].scope.clear(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.adapters[0].scope = {"nothing"}; }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.generation[0].purposes.clear(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.generation[0].layers.clear(); }));
  EXPECT_TRUE(invalid([](Manifest& m) { m.privacy.not_covered.clear(); }));
  EXPECT_FALSE(invalid([](Manifest&) {}));
}

TEST(Envelope, IsWhatItsKeySigned) {
  const std::string envelope = sign(manifest(), release_key());
  const Opened opened = open(envelope, release_key().public_key());
  ASSERT_TRUE(opened.manifest) << opened.problem;
  EXPECT_EQ(*opened.manifest, manifest());
  EXPECT_EQ(read_unverified(envelope), manifest());
  // DSSE's pre-authentication encoding, written out.
  const json outer = json::parse(envelope);
  const Bytes payload = from_base64(outer.at("payload").get<std::string>());
  std::string message = "DSSEv1 28 application/vnd.in-toto+json " + std::to_string(payload.size()) +
                        " " + std::string(payload.begin(), payload.end());
  EXPECT_TRUE(release_key().public_key().verifies(
      bytes_of(message), from_base64(outer.at("signatures").at(0).at("sig").get<std::string>())));
}

TEST(Envelope, KeepsOrderOfFaults) {
  const std::string envelope = sign(manifest(), release_key());
  const auto fault = [](std::string_view text, std::uint8_t n) {
    const Opened opened = open(text, key(n).public_key());
    EXPECT_FALSE(opened.manifest);
    EXPECT_FALSE(opened.problem.empty());
    return opened.fault;
  };
  EXPECT_EQ(fault(envelope, 8), EnvelopeFault::kUnknownKey);
  EXPECT_EQ(fault("", 7), EnvelopeFault::kMalformed);
  EXPECT_EQ(fault("{}", 7), EnvelopeFault::kMalformed);
  EXPECT_EQ(fault(envelope + " ", 7), EnvelopeFault::kMalformed);
  json two = json::parse(envelope);
  two["signatures"].push_back(two["signatures"][0]);
  EXPECT_EQ(fault(two.dump() + "\n", 7), EnvelopeFault::kMalformed);
  json none = json::parse(envelope);
  none["signatures"] = json::array();
  EXPECT_EQ(fault(none.dump() + "\n", 7), EnvelopeFault::kMalformed);
  // Signed by a stranger who names the trusted key.
  json forged = json::parse(sign(manifest(), key(8)));
  forged["signatures"][0]["keyid"] = to_hex(release_key().public_key().id());
  EXPECT_EQ(fault(forged.dump() + "\n", 7), EnvelopeFault::kBadSignature);
}

// One bit of every byte of the file is flipped: no gate accepts it.
TEST(Envelope, NoFlippedBitIsBelieved) {
  const std::string envelope = sign(manifest(), release_key());
  const admission::PublicKey trusted = release_key().public_key();
  for (std::size_t i = 0; i < envelope.size(); ++i) {
    std::string bent = envelope;
    bent[i] = static_cast<char>(bent[i] ^ (1 << i % 8));
    EXPECT_FALSE(open(bent, trusted).manifest) << "byte " << i;
    if (i % 16 == 0) {
      EXPECT_FALSE(open(envelope.substr(0, i), trusted).manifest) << i;
    }
  }
}

// Every field of the statement, changed to something a manifest may say: the signature holds it.
TEST(Envelope, NoChangedFieldIsBelieved) {
  const std::string envelope = sign(manifest(), release_key());
  const json outer = json::parse(envelope);
  const Bytes payload = from_base64(outer.at("payload").get<std::string>());
  const json good = json::parse(payload.begin(), payload.end());
  int cases = 0;
  const std::function<void(const json::json_pointer&)> visit = [&](const json::json_pointer& at) {
    const json& here = good.at(at);
    if (here.is_structured()) {
      for (const auto& [name, value] : here.items())
        visit(here.is_array() ? at / std::stoul(name) : at / name);
      return;
    }
    json changed = good;
    json& field = changed.at(at);
    if (field.is_number()) field = field.get<std::uint64_t>() + 1;
    if (field.is_boolean()) field = !field.get<bool>();
    if (field.is_string()) field = field.get<std::string>() + "x";
    json bent = outer;
    bent["payload"] = to_base64(bytes_of(changed.dump()));
    const Opened opened = open(bent.dump() + "\n", release_key().public_key());
    EXPECT_EQ(opened.fault, EnvelopeFault::kBadSignature) << at.to_string();
    EXPECT_FALSE(opened.manifest) << at.to_string();
    ++cases;
  };
  visit(json::json_pointer());
  EXPECT_GT(cases, 60);
}

}  // namespace
}  // namespace discreet::release
