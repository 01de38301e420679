#pragma once

#include <optional>
#include <string>

#include "discreet/base/cbor.h"
#include "discreet/base/hash.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/random/generator.h"
#include "discreet/random/key.h"

namespace discreet::run {

// The keys of a native run: from its secret, bound to what they are used with.

// HMAC-SHA-256 of the digest of the data under a stream of the secret: whoever lacks the secret
// cannot test a guess of the data.
Digest data_commitment(const Digest& data, const random::Key& secret);

// The key of this configuration on these data, and of no other pair: a secret.key that comes to lie
// beside other settings gives other streams.
random::Key run_key(const random::Key& secret, const Config& resolved, const Digest& data);

// The same for a run that was begun in this environment (environment.h): where bits may differ and
// nothing is left to tell what was released, the streams differ too.
random::Key in_environment(const random::Key& run_key, const cbor::Value& environment);

// The randomness of a run. Every stream is of the algorithm that the run began with: the generator
// of another processor would draw other coins.
struct RunStreams {
  random::Key master;
  random::Algorithm algorithm;

  random::Generator of(std::string_view name) const { return {algorithm, master.derive(name)}; }
  mechanism::MechanismStreams mechanism() const {
    return {of(random::stream::kNoise), of("compression")};
  }
  // Of the coins; lineage: of the mechanism, empty if no step was executed again on other bits.
  random::Generator sampling(const std::string& lineage) const {
    random::Generator coins = of(random::stream::kSampling);
    return lineage.empty() ? std::move(coins) : coins.fork(lineage);
  }
};

// key: run_key(); not used if the configuration is not secure, as mechanism_streams(). recorded:
// the name of the algorithm that the run began with; throws kMalformed if it is none.
RunStreams run_streams(const DpConfig& privacy, random::Key key,
                       const std::optional<std::string>& recorded);

// "philox4x32", "aes_128_ctr", "chacha20".
std::string_view spelling(random::Algorithm algorithm) noexcept;

}  // namespace discreet::run
