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

// Why a contribution is rejected. The spelling is stable. If several reasons apply, the first in
// this order is reported.
enum class Refusal : std::uint8_t {
  kNoAttestation,    // NO_ATTESTATION: there is no signature
  kMalformed,        // MALFORMED: descriptor or attestation is not canonical
  kUntrustedKey,     // UNTRUSTED_KEY: the policy does not trust the key, or not for this class
  kRevokedKey,       // REVOKED_KEY
  kBadSignature,     // BAD_SIGNATURE
  kUnknownClass,     // UNKNOWN_CLASS: the policy has no such class
  kOutsideValidity,  // OUTSIDE_VALIDITY: its window does not cover the epoch, or is too long
  kBelowFloor,       // BELOW_FLOOR: the bound is more permissive than class or corpus allow
  kWithdrawn,        // WITHDRAWN
  kUsesExhausted,    // USES_EXHAUSTED: confidential, see Circumstances
  kOtherCorpus,      // OTHER_CORPUS: signed for another corpus, or for none and not accepted
  kDuplicate,        // DUPLICATE: the same payload of this contributor is already admitted
};
std::string_view to_string(Refusal refusal) noexcept;
inline constexpr int kRefusals = 12;

// A contribution as received.
struct Contribution {
  Bytes descriptor;
  Bytes attestation;  // empty: none
};

// The inputs of a verdict besides the policy; fixed for the epoch.
struct Circumstances {
  Instant time = 0;       // the epoch is [time, time + policy.epoch_seconds)
  Statements statements;  // rotations and revocations
  std::set<Digest> withdrawn;
  // True if a descriptor that names no corpus belongs to this corpus, because the ledger of this
  // corpus contains it. May be empty.
  std::function<bool(const Digest& descriptor)> in_ledger = {};
  // True if a descriptor has no uses left. The answer is confidential, and so are the verdicts that
  // use it: create a public view of a corpus without it.
  std::function<bool(const Digest& descriptor, const Descriptor&)> exhausted;
};

struct Verdict {
  Digest hash{};                         // of the bytes of the descriptor
  std::optional<Descriptor> descriptor;  // empty if malformed
  std::optional<Refusal> refusal;        // empty: admitted
  std::string reason;                    // of a rejection, one sentence
  // The name under which the policy trusts the key that signed it, rotated or not; empty if the
  // signature was not verified.
  std::string signer;
  bool admitted() const noexcept { return !refusal; }
};

// The gate of one epoch. It remembers what it admitted; nothing else may enter a batch.
//
// Rotation: from its time on, the new key may attest whatever the old key may, unless either is
// revoked. Revocation: by the policy, by its authority for any key, or by a key for itself. It
// covers everything that the key ever signed, including rotations, because a stolen key can sign
// any date.
class Gate {
 public:
  // Throws kInvalidInput if the time is not from 1970 to 9999.
  Gate(Policy policy, Circumstances circumstances);

  // One verdict per contribution, in order; threads >= 1 does not affect the verdicts. The gate
  // does not verify bytes again that it has already verified. DUPLICATE compares only contributions
  // of one contributor, because a comparison across contributors would tell one what another
  // contributed. Of duplicates in one call the first is admitted; a contribution that an earlier
  // call admitted stays admitted.
  std::vector<Verdict> admit(std::span<const Contribution> contributions, int threads = 1);

  // The descriptor admitted under this hash in this epoch; null if there is none. Safe from any
  // number of threads unless admit is running.
  const Descriptor* find(const Digest& hash) const noexcept;

  const Policy& policy() const noexcept { return policy_; }
  std::uint64_t verifications() const noexcept { return verifications_; }  // of signatures

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
