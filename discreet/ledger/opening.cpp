#include <algorithm>
#include <cmath>

#include "discreet/accounting/accountant.h"
#include "discreet/admission/cose.h"
#include "discreet/admission/descriptor.h"
#include "discreet/base/error.h"
#include "discreet/ledger/opening_impl.h"
#include "discreet/numerics/rounding.h"

namespace discreet::ledger {
namespace {

// What an amplified promise comes to at the ledger's delta: one Gaussian release of the signed
// multiplier; millionths, rounded down.
std::uint64_t promised_epsilon(const Header& header, const admission::Scaled& multiplier) {
  const auto accountant = accounting::make_accountant("pld");
  accountant->compose(accounting::Event(accounting::Gaussian{multiplier.from_above()},
                                        accounting::NoSampling{}, header.adjacency));
  const double lower = accountant->epsilon(static_cast<double>(header.delta) / kAtto).epsilon.lower;
  return static_cast<std::uint64_t>(std::floor(numerics::round_down(lower * kMicro, 1)));
}

}  // namespace

Opened admission_of(const Header& header, std::uint64_t number, const Store::Opening& opening,
                    const RawKey& contributor, std::uint64_t least_multiplier) {
  const admission::Descriptor descriptor = admission::decode_descriptor(opening.descriptor);
  if (!descriptor.corpus.empty() && descriptor.corpus != header.origin)
    malformed("ledger",
              "a descriptor was signed for another corpus than that of the ledger (rule 4)");
  Admission leaf;
  leaf.number = number;
  leaf.descriptor = admission::hash_of(opening.descriptor);
  leaf.signature = sha256(opening.signature);
  leaf.admissibility_class = descriptor.data_class;
  leaf.contributor = contributor;
  leaf.clip = descriptor.clip_norm.units;
  if (descriptor.promise == admission::Promise::kEveryPattern) {
    leaf.promise = Promise::kWorstCase;
    leaf.multiplier = descriptor.noise_multiplier.units;
    leaf.uses = descriptor.occurrences;
  } else {
    leaf.promise = Promise::kAmplified;
    leaf.multiplier = least_multiplier;
    leaf.epsilon = promised_epsilon(header, descriptor.noise_multiplier);
  }
  leaf.not_after = static_cast<std::uint64_t>(descriptor.not_after);
  leaf.adapter = descriptor.adapter;
  return {std::move(leaf), static_cast<std::uint64_t>(descriptor.not_before)};
}

std::uint64_t require_opens(const Admission& leaf, ByteView content, const Store::Opening& opening,
                            const Header& header) {
  const Opened opened =
      admission_of(header, leaf.number, opening, leaf.contributor, leaf.multiplier);
  if (!std::ranges::equal(encode(opened.leaf), content))
    malformed("ledger", "the admission differs from its signed descriptor (rule 4)");
  return opened.not_before;
}

bool attested(const Store::Opening& opening, const admission::PublicKey& key) {
  try {
    const auto signature = admission::decode_signature(opening.signature);
    return signature.key_id == key.id() &&
           admission::verifies(signature.message, key, opening.descriptor);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    return false;
  }
}

}  // namespace discreet::ledger
