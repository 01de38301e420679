#include "discreet/admission/policy.h"

#include <gtest/gtest.h>

#include "discreet/admission/policy_testing.h"
#include "discreet/base/error_testing.h"

namespace discreet::admission {
namespace {

using testing::policy_text;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& text) {
  return refusal([&] { read_policy(text, "p"); });
}

TEST(Policy, ReadsWhatTheFileSays) {
  const Policy p = testing::policy();
  EXPECT_EQ(p.corpus, "example");
  EXPECT_EQ(p.epoch_seconds, 86400u);
  EXPECT_EQ(p.classes.at("clinical").clip_norm.to_text(), "0.5");
  EXPECT_EQ(p.keys.at(1).classes, std::vector<std::string>{"public-text"});
  EXPECT_EQ(p.classes.at("diary").amplified->steps, 1000u);
}

TEST(Policy, SensitiveClassesDefaultToTheUpperThirtyPercent) {
  EXPECT_EQ(describe(testing::policy().classes.at("clinical").profile), "depth 0.7 to 1");
}

TEST(Policy, HashIsOfTheMeaningNotOfTheSpelling) {
  const std::string text = policy_text();
  const Digest hash = hash_of(read_policy(text, "p"));
  EXPECT_EQ(hash, hash_of(read_policy("# a comment\n" + replaced(text, "stddev: 2", "stddev: 2.0"),
                                      "q")));
  EXPECT_EQ(hash, hash_of(read_policy(replaced(text, "    sensitive: true\n",
                                               "    sensitive: true\n    profile: {depth: [0.7, "
                                               "1]}\n"),
                                      "p")));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"corpus: example", "corpus: other"},
           {"accountant: rdp", "accountant: moments"},
           {"clip_norm: 0.01", "clip_norm: 0.02"},
           {"epoch_seconds: 86400", "epoch_seconds: 86401"},
           {"retention_epochs: 12", "retention_epochs: 13"},
           {"stddev: 2", "stddev: 2.000000001"},
           {"clipping: flat", "clipping: per_block"},
           {"clipping: flat", "clipping: flat, blocks: {head: 1}"},
           {"most_occurrences: 20", "most_occurrences: 21"},
           {"rate: 0.01", "rate: 0.02"},
           {"{whole: true}", "{layers: [0, 1]}"},
           {"[clinical, public-text, diary]", "[clinical, diary]"},
           {"authority", "revoked: [00112233445566778899aabbccddeeff]\nauthority"}})
    EXPECT_NE(hash, hash_of(read_policy(replaced(text, from, to), "p"))) << to;
}

TEST(Policy, ErrorsNameTheLineAndTheRemedy) {
  const std::string text = policy_text();
  const auto says = [&](const std::string& from, const std::string& to, const char* part) {
    const std::string sentence = refusal_of(replaced(text, from, to));
    EXPECT_NE(sentence.find(part), std::string::npos) << to << " gave: " << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos);
  };
  says("accountant: rdp", "acountant: rdp", "p:1: accountant is missing");
  says("retention_epochs: 12", "retention_epochs: 12\nretention_epohcs: 3",
       "did you mean retention_epochs");
  says("corpus: example", "corpus: example\ncorpus: twice", "already given on line 1");
  says("accountant: rdp", "accountant: gdp", "p:2: accountant must be one of rdp, moments, pld");
  says("clip_norm: 0.5", "clip_norm: 0.0000000001", "p:10:");
  says("clip_norm: 0.5", "clip_norm: -1", "p:10:");
  says("clip_norm: 0.5", "clip_norm: nan", "p:10:");
  says("clip_norm: 0.5", "clip_norm: 0", "positive");
  says("clip_norm: 0.5", "clip_norm: 0.001", "below floors.clip_norm");
  says("noise_multiplier: 1\n", "noise_multiplier: 0.1\n", "below floors.noise_multiplier");
  says("    sensitive: true\n", "", "only sensitive classes have a default");
  says("{whole: true}", "{whole: true, layers: [0, 1]}", "exactly one of");
  says("{whole: true}", "{layers: [3, 1]}", "must ascend");
  says("{whole: true}", "{depth: [0.7, 1.1]}", "ascending fractions from 0 to 1");
  says("{whole: true}", "{whole: true, heads: [1, 1]}", "distinct numbers");
  says("[public-text]", "[public-txt]", "did you mean public-text");
  says("rate: 0.01", "rate: 1.5", "(0, 1]");
  says("name: library", "name: hospital", "twice");
  says("{whole: true}", "{depth: [0.7\n\n, 0.\n\n\n9]}", "is '0.  9'; ");
  says("[public-text]", "[\"a\\nb\\e[2J\"]", "names 'a b [2J', which is not a class");
  says("corpus: example", "corpus: example\n\"a\\nb\": 1", "the key 'a b' has more than one line");
  says("epoch_seconds: 86400", "epoch_seconds: 0", "integer from 1");
  EXPECT_TRUE(refusal_of("").starts_with('p'));
  EXPECT_NE(refusal_of("[]").find("mapping"), std::string::npos);
}

TEST(Policy, KeysOfLowOrderAreRefused) {
  const std::string text = policy_text();
  const std::string hex = to_hex(testing::key_of(2).public_key().bytes());
  const std::string low = "01" + std::string(62, '0');
  EXPECT_NE(refusal_of(replaced(text, hex, low)).find("low order"), std::string::npos);
}

}  // namespace
}  // namespace discreet::admission
