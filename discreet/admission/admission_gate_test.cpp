#include "discreet/admission/admission_gate.h"

#include <gtest/gtest.h>

#include "discreet/admission/policy_testing.h"

namespace discreet::admission {
namespace {

using testing::clinical;
using testing::key_of;
using testing::now;

Contribution signed_by(const SigningKey& key, const Descriptor& d) {
  const Bytes bytes = encode(d);
  return {bytes, attest(key, bytes)};
}
Contribution signed_by(std::uint8_t key, const Descriptor& d) { return signed_by(key_of(key), d); }

Verdict verdict(const Contribution& c, Circumstances at = {}) {
  at.time = now();
  Gate gate(testing::policy(), std::move(at));
  const Verdict v = gate.admit({&c, 1}).front();
  // A rejected contribution cannot be found, for any reason of rejection.
  EXPECT_EQ(gate.find(v.hash) != nullptr, v.admitted());
  return v;
}

void expect_refused(const Verdict& v, const char* code, const char* part = "") {
  ASSERT_TRUE(v.refusal) << code;
  EXPECT_EQ(to_string(*v.refusal), code) << v.reason;
  EXPECT_NE(v.reason.find(part), std::string::npos) << v.reason;
}

TEST(Gate, AdmitsWhatIsAttestedWithinItsTerms) {
  const Verdict v = verdict(signed_by(1, clinical()));
  EXPECT_TRUE(v.admitted()) << v.reason;
  EXPECT_EQ(v.hash, hash_of(encode(clinical())));
  EXPECT_EQ(*v.descriptor, clinical());
}

TEST(Gate, RefusesWithoutAttestation) {
  expect_refused(verdict({encode(clinical()), {}}), "NO_ATTESTATION");
  expect_refused(verdict({{}, {}}), "NO_ATTESTATION");
}

TEST(Gate, RefusesMalformedBytes) {
  Contribution c = signed_by(1, clinical());
  c.descriptor.push_back(0);
  expect_refused(verdict(c), "MALFORMED");
  c = signed_by(1, clinical());
  c.attestation.pop_back();
  expect_refused(verdict(c), "MALFORMED");
}

TEST(Gate, RefusesBadSignatures) {
  Contribution c = signed_by(1, clinical());
  c.attestation.back() ^= 1;
  expect_refused(verdict(c), "BAD_SIGNATURE", "hospital");
  // Every field is bound: a signature for other terms does not pass.
  Descriptor weaker = clinical();
  weaker.occurrences = 1;
  c = signed_by(1, clinical());
  c.descriptor = encode(weaker);
  expect_refused(verdict(c), "BAD_SIGNATURE");
}

TEST(Gate, RefusesKeysThatThePolicyDoesNotTrust) {
  expect_refused(verdict(signed_by(3, clinical())), "UNTRUSTED_KEY", "does not trust key");
  expect_refused(verdict(signed_by(2, clinical())), "UNTRUSTED_KEY",
                 "library may not attest class clinical");
  // Key 3 signs under the id of key 1.
  Contribution c = signed_by(3, clinical());
  const Contribution other = signed_by(1, clinical());
  const KeyId mine = key_of(3).public_key().id(), theirs = key_of(1).public_key().id();
  const auto at = std::search(c.attestation.begin(), c.attestation.end(), mine.begin(), mine.end());
  ASSERT_NE(at, c.attestation.end());
  std::copy(theirs.begin(), theirs.end(), at);
  expect_refused(verdict(c), "BAD_SIGNATURE");
}

TEST(Gate, RefusesRevokedKeys) {
  const KeyId id = key_of(1).public_key().id();
  const auto with = [&](std::uint8_t signer) {
    Circumstances at;
    at.statements = decode_statements({sign_revocation(key_of(signer), {id}, now())});
    return verdict(signed_by(1, clinical()), at);
  };
  expect_refused(with(9), "REVOKED_KEY");  // the authority
  expect_refused(with(1), "REVOKED_KEY");  // itself
  EXPECT_TRUE(with(2).admitted()) << "a stranger revoked a key";
  Policy policy = testing::policy();
  policy.revoked = {id};
  Gate gate(policy, {.time = now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
  const Contribution c = signed_by(1, clinical());
  expect_refused(gate.admit({&c, 1}).front(), "REVOKED_KEY");
}

TEST(Gate, ARotatedKeyMayAttestWhatTheOldOneMay) {
  Circumstances at;
  at.statements = decode_statements(
      {sign_rotation(key_of(4), key_of(5), now()), sign_rotation(key_of(1), key_of(4), now())});
  EXPECT_TRUE(verdict(signed_by(5, clinical()), at).admitted());
  EXPECT_TRUE(verdict(signed_by(1, clinical()), at).admitted());
  expect_refused(verdict(signed_by(6, clinical()), at), "UNTRUSTED_KEY");
  // Not before its time, and not by a revoked key.
  Circumstances later;
  later.statements = decode_statements({sign_rotation(key_of(1), key_of(4), now() + 1)});
  expect_refused(verdict(signed_by(4, clinical()), later), "UNTRUSTED_KEY");
  at.statements.revocations =
      decode_statements({sign_revocation(key_of(9), {key_of(1).public_key().id()}, now())})
          .revocations;
  expect_refused(verdict(signed_by(4, clinical()), at), "UNTRUSTED_KEY");
}

TEST(Gate, RefusesOutsideTheValidityWindow) {
  Descriptor d = clinical();
  d.not_after = now();
  expect_refused(verdict(signed_by(1, d)), "OUTSIDE_VALIDITY");
  d.not_after = now() + 86399;  // ends a second before the epoch does
  expect_refused(verdict(signed_by(1, d)), "OUTSIDE_VALIDITY");
  d.not_after = now() + 86400;
  EXPECT_TRUE(verdict(signed_by(1, d)).admitted());
  d.not_before = now() + 1;
  d.not_after = now() + 1000000;
  expect_refused(verdict(signed_by(1, d)), "OUTSIDE_VALIDITY");
  d.not_before = now() - 731 * 86400;
  expect_refused(verdict(signed_by(1, d)), "OUTSIDE_VALIDITY", "the policy allows 730");
}

TEST(Gate, RefusesBoundsMorePermissiveThanTheFloor) {
  const auto with = [](auto change) {
    Descriptor d = clinical();
    change(d);
    return verdict(signed_by(1, d));
  };
  expect_refused(with([](Descriptor& d) { d.noise_multiplier.units--; }), "BELOW_FLOOR",
                 "of class clinical");
  expect_refused(with([](Descriptor& d) { d.clip_norm.units++; }), "BELOW_FLOOR",
                 "of class clinical");
  expect_refused(with([](Descriptor& d) { d.noise_multiplier = {499'999'999}; }), "BELOW_FLOOR",
                 "corpus floor");
  expect_refused(with([](Descriptor& d) { d.clip_norm = {9'999'999}; }), "BELOW_FLOOR",
                 "corpus floor");
  expect_refused(with([](Descriptor& d) { d.occurrences++; }), "BELOW_FLOOR", "occurrences");
  expect_refused(with([](Descriptor& d) { d.adapter = "lora"; }), "BELOW_FLOOR", "adapter");
  // Bounds stricter than those of the class are accepted.
  EXPECT_TRUE(with([](Descriptor& d) {
                d.noise_multiplier.units *= 2;
                d.clip_norm.units /= 2;
                d.occurrences = 1;
              }).admitted());
}

TEST(Gate, AnAmplifiedClassNeedsTheSignedConsentAndTheWholeSchedule) {
  Descriptor d = clinical();
  d.data_class = "diary";
  d.occurrences = 1000;
  expect_refused(verdict(signed_by(1, d)), "BELOW_FLOOR", "every pattern");
  d.promise = Promise::kAmplified;
  EXPECT_TRUE(verdict(signed_by(1, d)).admitted());
  d.occurrences = 999;
  expect_refused(verdict(signed_by(1, d)), "BELOW_FLOOR", "1000 steps");
}

TEST(Gate, RefusesUnknownClasses) {
  Descriptor d = clinical();
  d.data_class = "clinica";
  expect_refused(verdict(signed_by(1, d)), "UNKNOWN_CLASS", "clinica");
}

TEST(Gate, RefusesWhatIsWithdrawn) {
  Circumstances at;
  at.withdrawn = {hash_of(encode(clinical()))};
  expect_refused(verdict(signed_by(1, clinical()), at), "WITHDRAWN");
  EXPECT_TRUE(verdict(signed_by(1, clinical(1)), at).admitted());
}

TEST(Gate, RefusesWhatHasNoUseLeft) {
  Circumstances at;
  at.exhausted = [](const Digest& hash, const Descriptor&) {
    return hash == hash_of(encode(clinical()));
  };
  expect_refused(verdict(signed_by(1, clinical()), at), "USES_EXHAUSTED");
  EXPECT_TRUE(verdict(signed_by(1, clinical(1)), at).admitted());
}

TEST(Gate, DuplicatesAreThoseOfOneContributorOnly) {
  Descriptor again = clinical();
  again.nonce[1] = 1;
  Descriptor other = again;
  other.contributor = "patient-2";
  const std::vector<Contribution> all = {signed_by(1, clinical()), signed_by(1, again),
                                         signed_by(1, other), signed_by(1, clinical())};
  Gate gate(testing::policy(), {.time = now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
  const auto verdicts = gate.admit(all);
  EXPECT_TRUE(verdicts[0].admitted());
  expect_refused(verdicts[1], "DUPLICATE", "patient-1");
  EXPECT_TRUE(verdicts[2].admitted());
  expect_refused(verdicts[3], "DUPLICATE");
  // Asked again, the first is still admitted and the second still is not.
  EXPECT_TRUE(gate.admit({&all[0], 1}).front().admitted());
  expect_refused(gate.admit({&all[1], 1}).front(), "DUPLICATE");
}

TEST(Gate, AForgedCopyBlocksNothing) {
  Contribution forged = signed_by(1, clinical());
  forged.attestation.back() ^= 1;
  const std::vector<Contribution> all = {forged, signed_by(1, clinical())};
  Gate gate(testing::policy(), {.time = now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
  const auto verdicts = gate.admit(all);
  expect_refused(verdicts[0], "BAD_SIGNATURE");
  EXPECT_TRUE(verdicts[1].admitted());
}

TEST(Gate, VerifiesOnceAnEpoch) {
  const Contribution c = signed_by(1, clinical());
  Gate gate(testing::policy(), {.time = now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(gate.admit({&c, 1}).front().admitted());
  EXPECT_EQ(gate.verifications(), 1u);
  // Another signature over the same descriptor is not a cached one.
  Contribution forged = c;
  forged.attestation.back() ^= 1;
  expect_refused(gate.admit({&forged, 1}).front(), "BAD_SIGNATURE");
  EXPECT_EQ(gate.verifications(), 2u);
}

TEST(Gate, VerdictsDoNotDependOnTheNumberOfThreads) {
  std::vector<Contribution> all;
  for (int i = 0; i < 120; ++i) {
    Descriptor d = clinical(static_cast<std::uint8_t>(i % 30));
    d.nonce[2] = static_cast<std::uint8_t>(i);
    if (i % 7 == 0) d.noise_multiplier.units /= 2;
    all.push_back(signed_by(static_cast<std::uint8_t>(1 + i % 3), d));
    if (i % 11 == 0) all.back().attestation.clear();
  }
  const auto run = [&](int threads) {
    Gate gate(testing::policy(),
              {.time = now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
    std::string text;
    for (const Verdict& v : gate.admit(all, threads))
      text += v.admitted() ? "ADMITTED\n" : std::string(to_string(*v.refusal)) + v.reason + "\n";
    return text;
  };
  const std::string one = run(1);
  EXPECT_NE(one.find("ADMITTED"), std::string::npos);
  EXPECT_NE(one.find("DUPLICATE"), std::string::npos);
  for (int threads : {2, 3, 8, 500}) EXPECT_EQ(run(threads), one);
}

TEST(Gate, RefusesWhatWasSignedForAnotherCorpus) {
  Descriptor d = clinical();
  d.corpus = "example-2";
  expect_refused(verdict(signed_by(1, d)), "OTHER_CORPUS", "example-2");
}

// Descriptors from before they named their corpus are valid without a new signature, where the
// policy or the ledger says so.
TEST(Gate, AcceptsWhatWasSignedForNoCorpusByPolicyOrLedgerOnly) {
  Descriptor d = clinical();
  d.corpus.clear();
  const Contribution c = signed_by(1, d);
  const Digest hash = hash_of(c.descriptor);
  expect_refused(verdict(c), "OTHER_CORPUS", "accept_unbound");
  Circumstances at;
  at.in_ledger = [&](const Digest& known) { return known == hash; };
  EXPECT_TRUE(verdict(c, at).admitted());
  Policy policy = read_policy(testing::policy_text() + "accept_unbound: [" + to_hex(hash) + "]\n",
                              "policy.yaml");
  Gate gate(policy, {.time = now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
  EXPECT_TRUE(gate.admit({&c, 1}).front().admitted());
  d.nonce[5] = 1;
  const Contribution other = signed_by(1, d);
  expect_refused(gate.admit({&other, 1}).front(), "OTHER_CORPUS");
  // A policy without the list has the bytes it had before there was one.
  EXPECT_NE(hash_of(policy), hash_of(testing::policy()));
  policy.accept_unbound.clear();
  EXPECT_EQ(hash_of(policy), hash_of(testing::policy()));
}

}  // namespace
}  // namespace discreet::admission
