#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "discreet/admission/cose.h"
#include "discreet/admission/descriptor.h"
#include "discreet/ledger/ledger.h"

// A small corpus and its ledger, the same in every run.
namespace discreet::ledger::testing {

inline admission::SigningKey key(std::uint8_t n) {
  return admission::SigningKey::from_seed(Bytes(32, n));
}
inline admission::SigningKey ledger_key() { return key(1); }
inline admission::SigningKey contributor_key() { return key(2); }
inline admission::SigningKey steward_key() { return key(3); }

inline RawKey raw(const admission::SigningKey& key) {
  RawKey out;
  const auto pk = key.public_key();
  std::copy(pk.bytes().begin(), pk.bytes().end(), out.begin());
  return out;
}

inline constexpr std::uint64_t kToday = 1'800'000'000;

inline Header header(std::string accountant = "pld", std::uint64_t schema = kSchemaVersion) {
  Header h;
  h.schema = schema;
  h.origin = "test.example/corpus";
  h.accountant = std::move(accountant);
  h.delta = 10'000'000'000'000;  // 1e-5
  h.multiplier_floor = 500'000'000;
  h.retention = 1000;
  h.stewards = {raw(steward_key())};
  return h;
}

inline Ledger::Contribution contribution(std::uint32_t n, std::string data_class = "public",
                                         std::uint64_t not_after = kToday + 1'000'000) {
  admission::Descriptor d;
  d.contributor = "contributor";
  d.data_class = std::move(data_class);
  d.clip_norm = {1'000'000'000};
  d.noise_multiplier = {1'000'000'000};
  d.occurrences = 4;
  d.not_before = 0;
  d.not_after = static_cast<admission::Instant>(not_after);
  for (int i = 0; i < 4; ++i)
    d.nonce[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(n >> 8 * i);
  const Bytes bytes = admission::encode(d);
  const auto signer = contributor_key();
  return {bytes, admission::attest(signer, bytes), signer.public_key()};
}

inline Digest hash_of(const Ledger::Contribution& c) { return sha256(c.descriptor); }

inline std::vector<Ledger::Contribution> contributions(std::uint32_t begin, std::uint32_t end,
                                                       std::string data_class = "public",
                                                       std::uint64_t not_after = kToday +
                                                                                 1'000'000) {
  std::vector<Ledger::Contribution> out;
  for (std::uint32_t n = begin; n < end; ++n) out.push_back(contribution(n, data_class, not_after));
  return out;
}

// An epoch of a run that plans ten of them.
inline Terms terms(std::string data_class = "public", std::uint64_t deviation = 3'000'000'000) {
  Terms t;
  t.admissibility_class = std::move(data_class);
  t.profile = cbor::encode(cbor::map({{"layers", cbor::array({9, 11})}}));
  t.deviation = deviation;
  t.sampler = 1;
  t.rate = 10'000'000'000;  // 0.01
  t.steps = 100;
  t.planned_steps = 1000;
  return t;
}

inline Withdrawal withdrawal(const Digest& descriptor, const admission::SigningKey& signer) {
  Withdrawal w;
  w.descriptor = descriptor;
  w.reason = "asked";
  w.time = kToday;
  w.key = raw(signer);
  w.signature =
      admission::sign(signer, withdrawal_statement(header().origin, descriptor, w.reason, w.time));
  return w;
}

// A folder that is removed with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ledger.XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace discreet::ledger::testing
