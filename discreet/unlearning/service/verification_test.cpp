#include "discreet/unlearning/service/verification.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/unlearning/service/service_testing.h"

namespace discreet::unlearning {
namespace {

using namespace testing;

Verification verified(const EngineOptions& options, std::uint64_t runs = 1000) {
  Folder folder;
  Service::create(folder / "model.db", "m", options);
  auto ledger = new_ledger(folder / "ledger.db");
  Service s(folder / "model.db", repeatable_noise());
  s.insert("all", rows(0, 600));
  s.erase("d", std::vector<std::string>{"subject-1", "subject-2", "subject-3"}, ledger, kToday);
  const Digest before = s.state_digest();
  VerificationOptions o;
  o.forgotten = rows(1, 4);
  o.test = rows(1000, 1200);
  o.attack_runs = runs;
  const Verification found = verify(s, o);
  EXPECT_EQ(s.state_digest(), before) << "on copies only";
  return found;
}

// One false alarm in 20 would be expected of the 95% bound; the seeds are fixed.
TEST(Verification, EachCertificateHoldsAndTheControlIsCaught) {
  StreamOptions per_record = stream_options();
  per_record.odometer.guarantee = Guarantee::kPerRecord;
  for (const EngineOptions& options :
       std::vector<EngineOptions>{exact_options(), erm_options(), erm_options(Guarantee::kSetLevel),
                                  stream_options(), per_record}) {
    const Verification v = verified(options);
    EXPECT_TRUE(v.holds);
    ASSERT_TRUE(v.bound && v.epsilon_certified);
    EXPECT_LE(v.distance, *v.bound);
    EXPECT_LE(v.epsilon_lower_bound, *v.epsilon_certified);
    EXPECT_GT(v.control_lower_bound, 5) << "noise skipped, record kept";
    ASSERT_TRUE(v.retained && v.forgotten && v.test);
    EXPECT_EQ(v.test->measure, "accuracy");
    EXPECT_GT(v.test->retrained, 0.9);
    if (std::holds_alternative<StreamOptions>(options)) {
      EXPECT_GT(v.distance, 0.05 * *v.bound) << "the bound is not idle";
    } else {
      EXPECT_NEAR(v.test->served, v.test->retrained, 0.02);
      EXPECT_EQ(v.disagreement, 0);
    }
    EXPECT_EQ(v.same_state.has_value(), std::holds_alternative<ExactOptions>(options));
  }
}

TEST(Verification, WhatIsNotCertifiedHasNoBound) {
  const Verification v = verified(stream_options(Accounting::kSpecification, 10));
  EXPECT_FALSE(v.bound || v.epsilon_certified);
  EXPECT_NE(v.notes.at(0).find("not certified"), std::string::npos);
}

TEST(Verification, TooFewRunsAndNoRecordsAreRefused) {
  Folder folder;
  Service::create(folder / "model.db", "m", exact_options());
  Service s(folder / "model.db");
  EXPECT_THROW(verify(s), Error);
  s.insert("all", rows(0, 3));
  VerificationOptions few;
  few.attack_runs = 3;
  EXPECT_THROW(verify(s, few), Error);
}

}  // namespace
}  // namespace discreet::unlearning
