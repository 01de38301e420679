// A ledger from its first entry to an auditor's verdict: admit, reserve epochs, withdraw, verify,
// prove. This example holds the keys of all parties; in practice each party has only its own.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "discreet/discreet.h"

using namespace discreet;
using namespace discreet::ledger;

int main() {
  std::string name = (std::filesystem::temp_directory_path() / "discreet-example-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  const auto operator_key = admission::SigningKey::from_seed(Bytes(32, 1));
  const auto contributor = admission::SigningKey::from_seed(Bytes(32, 2));

  // The contract: under which accountant and delta every epsilon is recorded.
  Header header;
  header.origin = "example.com/corpus";
  header.accountant = "pld";
  header.delta = 10'000'000'000'000;  // 1e-5
  auto ledger = Ledger::create(folder / "ledger.db", header, bytes_of("the corpus policy"),
                               admission::SigningKey::from_seed(Bytes(32, 1)));

  std::vector<Ledger::Contribution> contributions;
  for (std::uint8_t i = 0; i < 3; ++i) {
    admission::Descriptor d;
    d.contributor = "ward-7";
    d.data_class = "sensitive";
    d.clip_norm = {1'000'000'000};         // C = 1
    d.noise_multiplier = {1'000'000'000};  // z = 1
    d.occurrences = 4;                     // k
    d.not_after = 2'000'000'000;
    d.nonce[0] = i;  // random in practice
    const Bytes bytes = admission::encode(d);
    contributions.push_back(
        {bytes, admission::attest(contributor, bytes), contributor.public_key()});
  }
  ledger.admit(contributions, {{{"BELOW_FLOOR", 1}}});
  const std::string kept = ledger.note();  // what an auditor keeps

  // Before an epoch's first step: one use for every contribution of the class.
  Terms terms;
  terms.admissibility_class = "sensitive";
  terms.profile = cbor::encode(cbor::map({{"layers", cbor::array({9, 11})}}));
  terms.deviation = 3'000'000'000;  // of the noise: 3
  terms.sampler = 1;                // Poisson
  terms.rate = 10'000'000'000;      // 0.01
  terms.steps = 100;
  terms.planned_steps = 1000;  // of the whole run: what every epsilon is of, however it ends
  ledger.reserve_epoch("run-1", 0, 1'800'000'000, {terms});

  const Digest descriptor = sha256(contributions[1].descriptor);
  const Withdrawal withdrawal =
      sign_withdrawal(contributor, header.origin, descriptor, "moved", 1'800'000'100);
  ledger.withdraw({&withdrawal, 1});
  ledger.reserve_epoch("run-1", 1, 1'800'000'200, {terms});

  VerifyOptions options;
  options.key = operator_key.public_key();
  options.checkpoint = kept;
  const Verification found = verify(folder / "ledger.db", options);
  std::printf("%s: %llu contributions, %llu uses in %llu epochs\n",
              found.ok ? "VERIFIED" : found.problem.c_str(),
              static_cast<unsigned long long>(found.counts.admissions),
              static_cast<unsigned long long>(found.counts.uses),
              static_cast<unsigned long long>(found.counts.epochs));

  Store store(folder / "ledger.db", Store::Mode::kRead);
  const Trace touched = trace(store, descriptor);
  std::printf("withdrawn after %zu epoch, epsilon <= %.4f\n", touched.uses.size(),
              static_cast<double>(touched.spend) / kMicro);

  const std::string proof = prove_entry(folder / "ledger.db", touched.withdrawal->position);
  std::printf("proof of the withdrawal, without the ledger: %s\n",
              verify_proof(proof, operator_key.public_key()).ok ? "holds" : "does not hold");
  std::filesystem::remove_all(folder);
}
