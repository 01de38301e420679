#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/release/manifest.h"
#include "discreet/release/request.h"

namespace discreet::release {

// Why a request is allowed or denied. The spelling is stable. Where several apply, the first in
// this order is given.
enum class Reason : std::uint8_t {
  kMalformedManifest,       // MALFORMED_MANIFEST
  kUnknownKey,              // UNKNOWN_KEY: not signed by the trusted key
  kBadSignature,            // BAD_SIGNATURE
  kWrongModel,              // WRONG_MODEL: the files served are not those of the manifest
  kLedgerUnverified,        // LEDGER_UNVERIFIED: the ledger or a checkpoint does not bear it out
  kNotRecorded,             // NOT_RECORDED: the ledger has no such release
  kWithdrawn,               // WITHDRAWN: a contribution was withdrawn since
  kNotYetValid,             // NOT_YET_VALID: issued in the future, by this clock
  kStale,                   // STALE: older than its max_age
  kUnknownGenerationClass,  // UNKNOWN_GENERATION_CLASS
  kPurposeNotGranted,       // PURPOSE_NOT_GRANTED
  kDrawsOnWithdrawn,        // DRAWS_ON_WITHDRAWN: on layers of what was withdrawn before
  kClassNotPermitted,       // CLASS_NOT_PERMITTED: on layers of classes outside the rights
  kEpsilonAbove,            // EPSILON_ABOVE: on layers of contributions that spent too much
  kAllowed,                 // ALLOWED
};
std::string_view to_string(Reason reason) noexcept;

struct Decision {
  Reason reason = Reason::kMalformedManifest;
  std::string sentence;
  std::uint64_t position = 0;  // entries of the ledger that were looked at; 0: none
  bool allowed() const noexcept { return reason == Reason::kAllowed; }
};

// The inference-time gate: whether a model may answer a request. It decides on the declared scope
// of the request's generation class (soundness F10): on which layers and adapters it draws, which
// classes of contributions were permitted there, and whether that is within the request's rights.
// What a model computes is not looked at.
//
// It fails closed: a manifest or ledger that is not what it should be makes a gate that denies
// everything, with the reason. Manifest, model and ledger are looked at once, when it is made; the
// clock at every decision. So a withdrawal reaches a running gate when it is made again with a
// newer ledger, and at the latest when the manifest is stale.
class Gate {
 public:
  struct Evidence {
    admission::PublicKey key;      // whose releases are trusted
    std::vector<ModelFile> model;  // the files that are served: all of the manifest, no other
    // The ledger as it is now: verified whole, must extend the manifest's note, record the release
    // and say what the manifest says of its postures. None: the manifest is believed until it is
    // stale.
    std::optional<std::filesystem::path> ledger = {};
    std::optional<admission::PublicKey> ledger_key = {};  // none: the one the manifest names
    // A note from elsewhere: the ledger must extend it; without a ledger, a note that is newer than
    // the manifest denies.
    std::optional<std::string> checkpoint = {};
    std::function<std::uint64_t()> clock = {};  // seconds since 1970; empty: the system's
  };
  // Never throws for what manifest, ledger or note contain; kIoError if the machine fails.
  Gate(std::string_view envelope, Evidence evidence);

  // From any number of threads.
  Decision decide(const Request& request) const;
  // Whether the manifest holds now, whatever is asked: kAllowed, or one of the reasons up to
  // kStale.
  Decision standing() const;

  // None if it could not be opened: then nothing is to be believed of it.
  const std::optional<Manifest>& manifest() const noexcept { return manifest_; }
  // Where the ledger records the release; none if no ledger was given, or it does not.
  std::optional<std::uint64_t> released_at() const noexcept { return released_at_; }

 private:
  struct Kind {  // a generation class, and what is behind it
    std::vector<std::string> purposes;
    std::vector<Posture> postures;
    bool serves_withdrawn = false;
  };
  std::optional<Decision> examine(std::string_view envelope, const Evidence& evidence);
  std::optional<Decision> examine_ledger(std::string_view envelope, const Evidence& evidence);
  std::optional<Decision> examine_checkpoint(const std::string& note) const;
  void prepare();

  std::optional<Manifest> manifest_;
  std::optional<std::uint64_t> released_at_;
  std::uint64_t position_ = 0;
  std::optional<Decision> fault_;  // of every request
  std::function<std::uint64_t()> clock_;
  std::map<std::string, Kind, std::less<>> kinds_;
};

}  // namespace discreet::release
