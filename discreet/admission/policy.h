#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/admission/scaled.h"
#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"

namespace discreet::admission {

// The contract of a corpus: who may attest what, how much noise each class gets and which
// parameters its gradients may reach. Public, fixed when the corpus is created, and identified by
// its hash. Numbers are scaled integers (scaled.h).

// ---------------------------------------------------------------- depth profiles
//
// The stack of a model is the sequence of distinct layers of the tensors that belong to no adapter,
// in the order of the layout: layer 0 is nearest to the input, the upper end is the output. A
// profile permits layers, and with them their tensors. A public or frozen tensor is never
// permitted.

inline constexpr int kProfileSchema = 1;

// Layers first ... last of the stack, inclusive.
struct LayerBand {
  std::uint32_t first, last;
  friend bool operator==(const LayerBand&, const LayerBand&) = default;
};
// Fractions of the depth, 0 <= from < to <= 1. Layer i of L occupies [i/L, (i+1)/L] and is
// permitted if that interval lies in [from, to]. Exact: 0.7 to 1 permits layers 7, 8, 9 of 10; 9,
// 10, 11 of 12; and none of 3, which is rejected.
struct DepthBand {
  Scaled from, to;
  friend bool operator==(const DepthBand&, const DepthBand&) = default;
};
// These modules and everything below them, anywhere in the stack ("vision.3", or a whole tower
// "vision").
struct ModuleSet {
  std::vector<std::string> modules;  // at least one
  friend bool operator==(const ModuleSet&, const ModuleSet&) = default;
};
// The tensors of one adapter (a low-rank or prefix module), never base weights. Empty: the adapter
// that the descriptor names. A descriptor that names another adapter is rejected.
struct AdapterBound {
  std::string adapter;
  friend bool operator==(const AdapterBound&, const AdapterBound&) = default;
};
// All privately trained parameters; the class must request this explicitly.
struct WholeModel {
  friend bool operator==(const WholeModel&, const WholeModel&) = default;
};

struct DepthProfile {
  std::variant<DepthBand, LayerBand, ModuleSet, AdapterBound, WholeModel> where;
  // Only these attention heads or expert routes of the permitted layers, ascending; empty: no mask.
  // With a mask, only tensors with heads (or experts) are permitted, each in these slices. Heads
  // are numbered as in the tensor with the most heads: if a key or value head serves several query
  // heads (grouped-query attention), it is permitted if all of these are.
  std::vector<std::uint32_t> heads;
  std::vector<std::uint32_t> experts;
  friend bool operator==(const DepthProfile&, const DepthProfile&) = default;
};

// The upper 30%: the default for sensitive classes without a profile.
DepthProfile sensitive_profile();

// ---------------------------------------------------------------- the policy

// A class whose promise relies on the secrecy of the sampling: for `steps` steps of Poisson
// sampling at `rate`, epsilon at `delta` is at most that of one Gaussian release with the signed
// multiplier.
struct Amplified {
  Scaled rate;              // in (0, 1]
  std::uint32_t steps = 0;  // >= 1: the public schedule; reserved as a whole
  Scaled delta;             // in (0, 1)
  friend bool operator==(const Amplified&, const Amplified&) = default;
};

struct ClassPolicy {
  // The defaults, and the most permissive bound that a descriptor of the class may declare: its
  // clip norm must be at most, its multiplier at least the default.
  Scaled clip_norm;
  Scaled noise_multiplier;
  std::uint32_t most_occurrences = 1;
  bool sensitive = false;
  DepthProfile profile;
  std::optional<Amplified> amplified;
  friend bool operator==(const ClassPolicy&, const ClassPolicy&) = default;
};

struct TrustedKey {
  std::string name;
  PublicKey key;
  std::vector<std::string> classes;  // classes that it may attest, in file order
  friend bool operator==(const TrustedKey&, const TrustedKey&) = default;
};

enum class CorpusAccountant : std::uint8_t { kRdp, kMoments, kPld };
enum class BlockClipping : std::uint8_t {
  kFlat,      // one bound over the whole profile
  kPerBlock,  // one bound per block
};

struct Policy {
  std::string corpus;
  CorpusAccountant accountant = CorpusAccountant::kRdp;
  // The smallest clip norm and multiplier that any descriptor may declare.
  Scaled clip_norm_floor, noise_multiplier_floor;
  std::uint64_t most_validity_seconds = 0;  // longest window that a descriptor may claim
  std::uint64_t epoch_seconds = 0;          // how long verdicts hold; how often the ledger signs
  std::uint32_t retention_epochs = 0;       // after which descriptors are replaced by class totals
  // Noise on the sum of clipped gradients, by block. A block is a module with its own noise; a
  // tensor belongs to the longest matching one, and "default" is the rest.
  Scaled noise;                          // standard deviation s of the default block, > 0
  std::map<std::string, Scaled> blocks;  // by module
  BlockClipping clipping = BlockClipping::kFlat;
  std::map<std::string, ClassPolicy> classes;  // at least one
  std::vector<TrustedKey> keys;                // keys and names are unique
  std::optional<PublicKey> authority;          // may revoke any key
  std::vector<KeyId> revoked;                  // ascending
  // Hashes of descriptors without a corpus that this corpus accepts nevertheless, ascending: those
  // attested by earlier versions. In the bytes of a policy only if not empty.
  std::vector<Digest> accept_unbound;
  friend bool operator==(const Policy&, const Policy&) = default;
};

// Reads YAML; docs/concepts/attestation.md describes every key. Throws kInvalidDpConfig with one
// line that starts with "name:line: " for everything that parse_yaml rejects, unknown keys (with
// the nearest one), missing keys, values out of range and keys that name no class.
Policy read_policy(std::string_view text, std::string_view name);

// Deterministic CBOR of every setting including defaults: equal policies have equal bytes, however
// their files are written.
Bytes encode(const Policy& policy);
// The same for a single profile, as contained in the bytes of its policy.
Bytes encode(const DepthProfile& profile);
// SHA-256 of the bytes.
Digest hash_of(const Policy& policy);

std::string_view to_string(CorpusAccountant accountant) noexcept;  // "rdp", "moments", "pld"
std::string_view to_string(BlockClipping clipping) noexcept;       // "flat", "per_block"
std::string describe(const DepthProfile& profile);  // "depth 0.7 to 1", "layers 9 to 11, heads 0 3"

}  // namespace discreet::admission
