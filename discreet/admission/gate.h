#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "discreet/admission/descriptor.h"
#include "discreet/admission/policy.h"
#include "discreet/admission/statement.h"

namespace discreet::admission {

// Why a contribution is not admitted. The spelling is stable. Where several apply, the first in
// this order is given.
enum class Refusal : std::uint8_t {
  kNoAttestation,    // NO_ATTESTATION: there is no signature
  kMalformed,        // MALFORMED: descriptor or attestation are not canonical bytes of one
  kUntrustedKey,     // UNTRUSTED_KEY: the policy does not know the key, or not for this class
  kRevokedKey,       // REVOKED_KEY
  kBadSignature,     // BAD_SIGNATURE
  kUnknownClass,     // UNKNOWN_CLASS: the policy has no such class
  kOutsideValidity,  // OUTSIDE_VALIDITY: its window does not cover the epoch, or is too long
  kBelowFloor,       // BELOW_FLOOR: the bound is more permissive than the class or corpus allows
  kWithdrawn,        // WITHDRAWN
  kUsesExhausted,    // USES_EXHAUSTED: confidential, see Circumstances
  kOtherCorpus,      // OTHER_CORPUS: signed for another corpus, or for none and not accepted
  kDuplicate,        // DUPLICATE: this contributor has the same payload admitted already
};
std::string_view to_string(Refusal refusal) noexcept;
inline constexpr int kRefusals = 12;

// A contribution as it arrived.
struct Contribution {
  Bytes descriptor;
  Bytes attestation;  // empty: none
};

// What the verdict depends on besides the policy; fixed for the epoch.
struct Circumstances {
  Instant time = 0;       // the epoch is [time, time + policy.epoch_seconds)
  Statements statements;  // rotations and revocations
  std::set<Digest> withdrawn;
  // Whether a descriptor that names no corpus belongs to this one, because its ledger holds it.
  // May be empty.
  std::function<bool(const Digest& descriptor)> in_ledger;
  // Whether a descriptor has no use left. What it says is confidential, and so are then the
  // verdicts: a public view of a corpus is made without it.
  std::function<bool(const Digest& descriptor, const Descriptor&)> exhausted;
};

struct Verdict {
  Digest hash{};                         // of the descriptor's bytes
  std::optional<Descriptor> descriptor;  // unless these are malformed
  std::optional<Refusal> refusal;        // none: admitted
  std::string reason;                    // of a refusal, one sentence
  bool admitted() const noexcept { return !refusal; }
};

// The gate of one epoch. What it admitted it remembers; only that may enter a batch.
//
// Rotation: the new key may attest what the old one may, unless either is revoked. Revocation: by
// the policy, by its authority about any key, by a key about itself; it covers all that the key
// ever signed, because a stolen key can sign any date, and rotations by it.
class Gate {
 public:
  // Throws kInvalidInput if the time is not from 1970 to 9999.
  Gate(Policy policy, Circumstances circumstances);

  // One verdict per contribution, in order; the same for every number of threads, >= 1. A pair of
  // bytes that this gate has seen is not verified again. DUPLICATE compares within one contributor
  // only (across contributors it would tell one what another gave): of contributions in one call
  // the first is admitted; one that an earlier call admitted stays admitted.
  std::vector<Verdict> admit(std::span<const Contribution> contributions, int threads = 1);

  // The descriptor admitted under this hash in this epoch; null if there is none. From any number
  // of threads while nobody calls admit.
  const Descriptor* find(const Digest& hash) const noexcept;

  const Policy& policy() const noexcept { return policy_; }
  std::uint64_t verifications() const noexcept { return verifications_; }  // of signatures, so far

 private:
  struct HashBytes {
    std::size_t operator()(const Digest& digest) const noexcept;
  };
  Verdict judge(const Contribution& contribution) const;
  bool belongs(const Descriptor& d, const Digest& hash) const;
  void check_terms(const Descriptor& d, Verdict& verdict) const;

  Policy policy_;
  Circumstances circumstances_;
  std::map<KeyId, TrustedKey> trusted_;
  std::set<KeyId> revoked_;
  std::unordered_map<Digest, Verdict, HashBytes> seen_;  // by descriptor and attestation
  std::unordered_map<Digest, Descriptor, HashBytes> admitted_;
  std::map<std::pair<std::string, Digest>, Digest> payloads_;  // contributor, anchor: descriptor
  std::uint64_t verifications_ = 0;
};

}  // namespace discreet::admission
