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

// The contract of a corpus: who may attest what, how much noise each class gets and where its
// gradients may go. Public, fixed when the corpus begins, and known by its hash. Numbers are scaled
// integers (scaled.h).

// ---------------------------------------------------------------- depth profiles
//
// The stack of a model is the sequence of the distinct layers of those tensors that belong to no
// adapter, in the order of the layout: layer 0 is nearest the input, the upper end is the output.
// A profile permits layers, and with them their tensors; a public or frozen tensor is never
// permitted.

inline constexpr int kProfileSchema = 1;

// Layers first ... last of the stack, both included.
struct LayerBand {
  std::uint32_t first, last;
  friend bool operator==(const LayerBand&, const LayerBand&) = default;
};
// Fractions of the depth, 0 <= from < to <= 1. Layer i of L takes up [i/L, (i+1)/L]; it is
// permitted if all of that lies in [from, to]. Exact: 0.7 to 1 of 10 layers are the layers 7, 8, 9;
// of 12 layers 9, 10, 11; of 3 layers none, which is refused.
struct DepthBand {
  Scaled from, to;
  friend bool operator==(const DepthBand&, const DepthBand&) = default;
};
// These modules and all below them, anywhere in the stack ("vision.3", or a whole tower "vision").
struct ModuleSet {
  std::vector<std::string> modules;  // at least one
  friend bool operator==(const ModuleSet&, const ModuleSet&) = default;
};
// The tensors of one adapter (a low-rank or prefix module), and never base weights. Empty: the
// adapter that the descriptor names. A descriptor that names another is refused.
struct AdapterBound {
  std::string adapter;
  friend bool operator==(const AdapterBound&, const AdapterBound&) = default;
};
// Everything that is trained privately; the class must say so.
struct WholeModel {
  friend bool operator==(const WholeModel&, const WholeModel&) = default;
};

struct DepthProfile {
  std::variant<DepthBand, LayerBand, ModuleSet, AdapterBound, WholeModel> where;
  // Of the permitted layers only these attention heads or expert routes, ascending; empty: no mask.
  // With a mask only tensors that have heads (or experts) are permitted, each in these slices.
  // Heads are those of the tensor with most: where a key or value head serves several query heads
  // (grouped-query attention), it is permitted if all it serves are.
  std::vector<std::uint32_t> heads;
  std::vector<std::uint32_t> experts;
  friend bool operator==(const DepthProfile&, const DepthProfile&) = default;
};

// The upper 30%: of classes that are sensitive and name no profile.
DepthProfile sensitive_profile();

// ---------------------------------------------------------------- the policy

// A class whose promise counts on the secrecy of who is sampled: for `steps` steps of Poisson
// sampling at `rate`, epsilon at `delta` is at most that of one Gaussian release of the signed
// multiplier.
struct Amplified {
  Scaled rate;              // in (0, 1]
  std::uint32_t steps = 0;  // >= 1: the public schedule; reserved whole
  Scaled delta;             // in (0, 1)
  friend bool operator==(const Amplified&, const Amplified&) = default;
};

struct ClassPolicy {
  // The presets, and the least strict bound that a descriptor of the class may declare: its clip
  // norm is at most, its multiplier at least the preset.
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
  std::vector<std::string> classes;  // that it may attest, in the order of the file
  friend bool operator==(const TrustedKey&, const TrustedKey&) = default;
};

enum class CorpusAccountant : std::uint8_t { kRdp, kMoments, kPld };
enum class BlockClipping : std::uint8_t {
  kFlat,      // one bound over the whole profile
  kPerBlock,  // one per block
};

struct Policy {
  std::string corpus;
  CorpusAccountant accountant = CorpusAccountant::kRdp;
  // The least clip norm and multiplier that any descriptor may declare.
  Scaled clip_norm_floor, noise_multiplier_floor;
  std::uint64_t most_validity_seconds = 0;  // the longest window a descriptor may claim
  std::uint64_t epoch_seconds = 0;          // verdicts hold, and the ledger signs, so long
  std::uint32_t retention_epochs = 0;       // after which descriptors become class aggregates
  // Noise on the sum of clipped gradients, by block: a block is a module with noise of its own, the
  // longest that a tensor belongs to; "default" is the rest.
  Scaled noise;                          // standard deviation s of the default block, > 0
  std::map<std::string, Scaled> blocks;  // by module
  BlockClipping clipping = BlockClipping::kFlat;
  std::map<std::string, ClassPolicy> classes;  // at least one
  std::vector<TrustedKey> keys;                // no key and no name twice
  std::optional<PublicKey> authority;          // may revoke any key
  std::vector<KeyId> revoked;                  // ascending
  // Hashes of descriptors that name no corpus and are accepted in this one all the same, ascending:
  // those attested before descriptors named it. In the bytes of a policy only if there are any.
  std::vector<Digest> accept_unbound;
  friend bool operator==(const Policy&, const Policy&) = default;
};

// From YAML; see docs/concepts/attestation.md for every key. Throws kInvalidDpConfig in one line
// that begins "name:line: ": what mechanism's reader refuses, unknown keys with the nearest one,
// missing keys, values out of range, keys that name no class.
Policy read_policy(std::string_view text, std::string_view name);

// Deterministic CBOR of every setting, defaults included: equal policies have equal bytes, however
// their files were written.
Bytes encode(const Policy& policy);
// The same of a profile alone, as it is in the bytes of its policy.
Bytes encode(const DepthProfile& profile);
// SHA-256 of the bytes.
Digest hash_of(const Policy& policy);

std::string_view to_string(CorpusAccountant accountant) noexcept;  // "rdp", "moments", "pld"
std::string_view to_string(BlockClipping clipping) noexcept;       // "flat", "per_block"
std::string describe(const DepthProfile& profile);  // "depth 0.7 to 1", "layers 9 to 11, heads 0 3"

}  // namespace discreet::admission
