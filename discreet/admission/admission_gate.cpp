#include "discreet/admission/admission_gate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/numerics/parallel.h"

namespace discreet::admission {
namespace {

void refuse(Verdict& verdict, Refusal refusal, std::string reason) {
  verdict.refusal = refusal;
  verdict.reason = std::move(reason);
}

// Hashes both parts, the first with its length, so that no two pairs have the same bytes.
Digest hash_of_pair(const Contribution& c) {
  const std::uint64_t length = c.descriptor.size();
  std::uint8_t head[sizeof length];
  std::memcpy(head, &length, sizeof length);
  Sha256 sha;
  return sha.update(head).update(c.descriptor).update(c.attestation).finish();
}

}  // namespace

std::string_view to_string(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNoAttestation: return "NO_ATTESTATION";
    case Refusal::kMalformed: return "MALFORMED";
    case Refusal::kUntrustedKey: return "UNTRUSTED_KEY";
    case Refusal::kRevokedKey: return "REVOKED_KEY";
    case Refusal::kBadSignature: return "BAD_SIGNATURE";
    case Refusal::kOtherCorpus: return "OTHER_CORPUS";
    case Refusal::kUnknownClass: return "UNKNOWN_CLASS";
    case Refusal::kOutsideValidity: return "OUTSIDE_VALIDITY";
    case Refusal::kBelowFloor: return "BELOW_FLOOR";
    case Refusal::kWithdrawn: return "WITHDRAWN";
    case Refusal::kUsesExhausted: return "USES_EXHAUSTED";
    case Refusal::kDuplicate: return "DUPLICATE";
  }
  return "UNKNOWN";
}

// A digest is as good as random: its first bytes are a hash.
std::size_t Gate::HashBytes::operator()(const Digest& digest) const noexcept {
  std::size_t out;
  std::memcpy(&out, digest.data(), sizeof out);
  return out;
}

Gate::Gate(Policy policy, Circumstances circumstances)
    : policy_(std::move(policy)), circumstances_(std::move(circumstances)) {
  if (circumstances_.time < 0 || circumstances_.time >= kEndOfTime)
    invalid_input("Gate", "the time must be within 1970 to 9999");
  revoked_.insert(policy_.revoked.begin(), policy_.revoked.end());
  for (const Revocation& r : circumstances_.statements.revocations) {
    const bool by_authority = policy_.authority && r.signer == *policy_.authority;
    for (const KeyId& id : r.keys)
      if (by_authority || id == r.signer.id()) revoked_.insert(id);
  }
  for (const TrustedKey& key : policy_.keys) trusted_.emplace(key.key.id(), key);
  // A chain of rotations may come in any order: repeat until nothing is new.
  for (bool changed = true; changed;) {
    changed = false;
    for (const Rotation& r : circumstances_.statements.rotations) {
      const auto old = trusted_.find(r.from.id());
      if (old == trusted_.end() || revoked_.contains(r.from.id()) || r.time > circumstances_.time)
        continue;
      changed |=
          trusted_.try_emplace(r.to.id(), TrustedKey{old->second.name, r.to, old->second.classes})
              .second;
    }
  }
}

void Gate::check_terms(const Descriptor& d, Verdict& v) const {
  const ClassPolicy& c = policy_.classes.at(d.data_class);
  const auto window = static_cast<std::uint64_t>(d.not_after - d.not_before);
  const Instant end = circumstances_.time + static_cast<Instant>(policy_.epoch_seconds);
  if (circumstances_.time < d.not_before || end > d.not_after)
    return refuse(v, Refusal::kOutsideValidity,
                  fmt::format("valid from {} to {}, which does not cover the epoch from {} to {}",
                              instant_text(d.not_before), instant_text(d.not_after),
                              instant_text(circumstances_.time), instant_text(end)));
  if (window > policy_.most_validity_seconds)
    return refuse(v, Refusal::kOutsideValidity,
                  fmt::format("valid for {} days; the policy allows {}", window / 86400,
                              policy_.most_validity_seconds / 86400));
  const auto below = [&](std::string reason) {
    refuse(v, Refusal::kBelowFloor, std::move(reason));
  };
  if (d.clip_norm < policy_.clip_norm_floor)
    return below(fmt::format("clip norm {} is below the corpus floor {}", d.clip_norm.to_text(),
                             policy_.clip_norm_floor.to_text()));
  if (d.noise_multiplier < policy_.noise_multiplier_floor)
    return below(fmt::format("noise multiplier {} is below the corpus floor {}",
                             d.noise_multiplier.to_text(),
                             policy_.noise_multiplier_floor.to_text()));
  if (d.clip_norm > c.clip_norm)
    return below(fmt::format("clip norm {} is more permissive than {} of class {}",
                             d.clip_norm.to_text(), c.clip_norm.to_text(), d.data_class));
  if (d.noise_multiplier < c.noise_multiplier)
    return below(fmt::format("noise multiplier {} is more permissive than {} of class {}",
                             d.noise_multiplier.to_text(), c.noise_multiplier.to_text(),
                             d.data_class));
  if (d.occurrences > c.most_occurrences)
    return below(fmt::format("{} occurrences exceed the {} of class {}", d.occurrences,
                             c.most_occurrences, d.data_class));
  if (c.amplified && d.promise != Promise::kAmplified)
    return below(fmt::format(
        "class {} is amplified, which is weaker than the signed promise for every pattern",
        d.data_class));
  if (c.amplified && d.occurrences < c.amplified->steps)
    return below(fmt::format("the schedule of class {} has {} steps, but only {} are signed",
                             d.data_class, c.amplified->steps, d.occurrences));
  if (const auto* bound = std::get_if<AdapterBound>(&c.profile.where)) {
    if (bound->adapter.empty() ? d.adapter.empty()
                               : !d.adapter.empty() && d.adapter != bound->adapter)
      return below(fmt::format("class {} is bound to {}, but the descriptor names {}", d.data_class,
                               describe(c.profile), d.adapter.empty() ? "none" : d.adapter));
  } else if (!d.adapter.empty()) {
    return below(fmt::format("the descriptor is bound to adapter {}, but class {} to no adapter",
                             d.adapter, d.data_class));
  }
  if (circumstances_.withdrawn.contains(v.hash))
    return refuse(v, Refusal::kWithdrawn, "the contribution was withdrawn");
  if (circumstances_.exhausted && circumstances_.exhausted(v.hash, d))
    return refuse(v, Refusal::kUsesExhausted,
                  fmt::format("all {} uses are reserved", d.occurrences));
}

// Several corpora may trust a key, but each signature is for one of them: a signature for another
// corpus is not consent to this one.
bool Gate::belongs(const Descriptor& d, const Digest& hash) const {
  if (!d.corpus.empty()) return d.corpus == policy_.corpus;
  return std::binary_search(policy_.accept_unbound.begin(), policy_.accept_unbound.end(), hash) ||
         (circumstances_.in_ledger && circumstances_.in_ledger(hash));
}

Verdict Gate::judge(const Contribution& c) const {
  Verdict v;
  v.hash = hash_of(c.descriptor);
  if (c.attestation.empty()) {
    refuse(v, Refusal::kNoAttestation, "there is no attestation");
    return v;
  }
  KeyedSignature signature;
  try {
    v.descriptor = decode_descriptor(c.descriptor);
    signature = decode_signature(c.attestation);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMalformed) throw;
    refuse(v, Refusal::kMalformed, error.sentence());
    return v;
  }
  const Descriptor& d = *v.descriptor;
  const auto key = trusted_.find(signature.key_id);
  if (key == trusted_.end()) {
    refuse(v, Refusal::kUntrustedKey,
           fmt::format("the policy does not trust key {}", to_hex(signature.key_id)));
  } else if (revoked_.contains(signature.key_id)) {
    refuse(v, Refusal::kRevokedKey, fmt::format("key {} is revoked", to_hex(signature.key_id)));
  } else if (!verifies(signature.message, key->second.key, c.descriptor)) {
    refuse(v, Refusal::kBadSignature,
           fmt::format("the signature by {} does not verify", key->second.name));
  } else if (v.signer = key->second.name; !policy_.classes.contains(d.data_class)) {
    refuse(v, Refusal::kUnknownClass, fmt::format("the policy has no class {}", d.data_class));
  } else if (const auto& classes = key->second.classes;
             std::find(classes.begin(), classes.end(), d.data_class) == classes.end()) {
    refuse(v, Refusal::kUntrustedKey,
           fmt::format("{} may not attest class {}", key->second.name, d.data_class));
  } else {
    check_terms(d, v);
    if (v.admitted() && !belongs(d, v.hash))
      refuse(v, Refusal::kOtherCorpus,
             d.corpus.empty()
                 ? fmt::format("it was signed for no corpus; have it attested for {}, or list its "
                               "hash under accept_unbound in the policy",
                               policy_.corpus)
                 : fmt::format("it was signed for corpus {}, but this is {}", d.corpus,
                               policy_.corpus));
  }
  return v;
}

std::vector<Verdict> Gate::admit(std::span<const Contribution> contributions, int threads) {
  const std::size_t n = contributions.size();
  std::vector<Digest> pairs(n);
  std::vector<Verdict> fresh(n);
  std::vector<std::uint8_t> judged(n);
  numerics::parallel_items(n, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      pairs[i] = hash_of_pair(contributions[i]);
      if (seen_.contains(pairs[i])) continue;
      fresh[i] = judge(contributions[i]);
      judged[i] = 1;
    }
  });
  // What follows depends on the order: one thread.
  std::vector<Verdict> out;
  out.reserve(n);
  std::set<Digest> in_call;
  for (std::size_t i = 0; i < n; ++i) {
    verifications_ += judged[i];
    Verdict v = judged[i] != 0 ? std::move(fresh[i]) : seen_.at(pairs[i]);
    // Only contributions that passed count: a forged copy that came first blocks nothing.
    const bool repeated = v.admitted() && !in_call.insert(v.hash).second;
    if (v.admitted()) {
      const Descriptor& d = *v.descriptor;
      const auto [first, is_new] = payloads_.try_emplace({d.contributor, d.content_anchor}, v.hash);
      if (repeated || first->second != v.hash)
        refuse(v, Refusal::kDuplicate,
               fmt::format("{} already has this payload admitted, as {}", d.contributor,
                           to_hex(first->second)));
      else
        admitted_.try_emplace(v.hash, d);
    }
    // A repetition in this call says nothing about the contribution itself.
    if (judged[i] != 0 && !repeated) seen_.try_emplace(pairs[i], v);
    out.push_back(std::move(v));
  }
  return out;
}

const Descriptor* Gate::find(const Digest& hash) const noexcept {
  const auto at = admitted_.find(hash);
  return at == admitted_.end() ? nullptr : &at->second;
}

}  // namespace discreet::admission
