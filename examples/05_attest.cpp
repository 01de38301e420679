// Attestation alone: sign what a contribution is and what it is promised; a gate decides. No
// training.
#include <cstdio>

#include "discreet/discreet.h"

using namespace discreet;
using namespace discreet::admission;

int main() {
  const SigningKey key = SigningKey::from_seed(Bytes(32, 7));  // in reality: SigningKey::generate()
  const Policy policy = read_policy(
      "corpus: clinic\n"
      "accountant: rdp\n"
      "floors: {clip_norm: 0.01, noise_multiplier: 0.5}\n"
      "most_validity_days: 730\n"
      "epoch_seconds: 86400\n"
      "retention_epochs: 12\n"
      "noise: {stddev: 2, clipping: flat}\n"
      "classes:\n"
      "  clinical: {clip_norm: 0.5, noise_multiplier: 1, most_occurrences: 20, sensitive: true}\n"
      "keys:\n"
      "  - {name: hospital, classes: [clinical], public_key: " +
          to_hex(key.public_key().bytes()) + "}\n",
      "policy.yaml");

  Descriptor d;
  d.contributor = "patient-1";
  d.data_class = "clinical";
  d.clip_norm = parse_scaled("0.5", "clip norm");
  d.noise_multiplier = parse_scaled("1.25", "noise multiplier");
  d.occurrences = 16;
  d.not_before = parse_instant("2026-01-01", "not before");
  d.not_after = parse_instant("2027-01-01", "not after");
  d.corpus = policy.corpus;
  d.content_anchor = sha256(bytes_of("the payload"));
  d.nonce.fill(1);  // in reality: fresh_nonce()
  const Bytes descriptor = encode(d);
  const Contribution honest{descriptor, attest(key, descriptor)};
  d.noise_multiplier = parse_scaled("1", "noise multiplier");  // less noise than was signed
  const Contribution altered{encode(d), honest.attestation};

  Circumstances at;
  at.time = parse_instant("2026-06-01", "now");
  Gate gate(policy, at);
  const Contribution all[] = {honest, altered, {descriptor, {}}};
  for (const Verdict& v : gate.admit(all))
    std::printf("%s %s\n", to_hex(v.hash).substr(0, 8).c_str(),
                v.admitted() ? "ADMITTED" : std::string(to_string(*v.refusal)).c_str());

  // The promise: 16 uses at multiplier sqrt(16) * 1.25 are together one release at 1.25.
  const ModelLayout layout({{.name = "a.w", .shape = {4}},
                            {.name = "b.w", .shape = {4}},
                            {.name = "c.w", .shape = {4}},
                            {.name = "d.w", .shape = {4}}});
  const Resolution r = resolve(policy, *gate.find(hash_of(descriptor)), layout);
  std::printf("%u uses at multiplier %.6f, cut to %.6f, in layer %s\n", r.most_uses,
              r.use_multiplier, *r.plan.flat_clip, r.layers.front().c_str());
}
