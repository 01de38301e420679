#pragma once

#include <optional>
#include <string>

#include "discreet/base/cbor.h"
#include "discreet/base/hash.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/random/generator.h"
#include "discreet/random/key.h"

namespace discreet::run {

// The keys of a native run: derived from its secret, bound to what they are used with.

// HMAC-SHA-256 of the digest of the data under a stream of the secret: without the secret, nobody
// can test a guess of the data.
Digest data_commitment(const Digest& data, const random::Key& secret);

// The key of this configuration on these data, and of no other pair: a secret.key copied to other
// settings gives other streams.
random::Key run_key(const random::Key& secret, const Config& resolved, const Digest& data);

// The same for a run started in this environment (environment.h): if bits may differ and no record
// of the releases is left, the streams differ too.
random::Key in_environment(const random::Key& run_key, const cbor::Value& environment);

// The randomness of a run. Every stream uses the algorithm with which the run started: the
// generator of another processor would draw other coins.
struct RunStreams {
  random::Key master;
  random::Algorithm algorithm;

  random::Generator of(std::string_view name) const { return {algorithm, master.derive(name)}; }
  mechanism::MechanismStreams mechanism() const {
    return {of(random::stream::kNoise), of("compression")};
  }
  // The stream of the coins. lineage: of the mechanism; empty if no step was executed again on
  // other bits.
  random::Generator sampling(const std::string& lineage) const {
    random::Generator coins = of(random::stream::kSampling);
    return lineage.empty() ? std::move(coins) : coins.fork(lineage);
  }
};

// key: run_key(); unused if the configuration is not secure, as in mechanism_streams(). recorded:
// the name of the algorithm with which the run started; throws kMalformed if it is unknown.
RunStreams run_streams(const DpConfig& privacy, random::Key key,
                       const std::optional<std::string>& recorded);

// "philox4x32", "aes_128_ctr", "chacha20".
std::string_view spelling(random::Algorithm algorithm) noexcept;

}  // namespace discreet::run
