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

// Why a request is allowed or denied. The spelling is stable. If several reasons apply, the first
// in this order is reported.
enum class Reason : std::uint8_t {
  kMalformedManifest,       // MALFORMED_MANIFEST
  kUnknownKey,              // UNKNOWN_KEY: not signed by the trusted key
  kBadSignature,            // BAD_SIGNATURE
  kWrongModel,              // WRONG_MODEL: the served files are not those of the manifest
  kLedgerUnverified,        // LEDGER_UNVERIFIED: the ledger or a checkpoint does not confirm it
  kNotRecorded,             // NOT_RECORDED: the ledger has no such release
  kWithdrawn,               // WITHDRAWN: a contribution was withdrawn since
  kNotYetValid,             // NOT_YET_VALID: issued in the future according to this clock
  kStale,                   // STALE: older than its max_age
  kUnknownGenerationClass,  // UNKNOWN_GENERATION_CLASS
  kPurposeNotGranted,       // PURPOSE_NOT_GRANTED
  kDrawsOnWithdrawn,        // DRAWS_ON_WITHDRAWN: on layers of contributions withdrawn earlier
  kClassNotPermitted,       // CLASS_NOT_PERMITTED: on layers of classes outside the rights
  kEpsilonAbove,            // EPSILON_ABOVE: on layers of contributions that spent too much
  kAllowed,                 // ALLOWED
};
std::string_view to_string(Reason reason) noexcept;

struct Decision {
  Reason reason = Reason::kMalformedManifest;
  std::string sentence;
  std::uint64_t position = 0;  // number of ledger entries considered; 0: none
  bool allowed() const noexcept { return reason == Reason::kAllowed; }
};

// The inference-time gate: decides whether a model may answer a request. The decision depends on
// the declared scope of the request's generation class: the layers and adapters it draws on, the
// classes of contributions permitted there, and whether these are within the request's rights. The
// gate does not inspect what the model computes.
//
// The gate fails closed: with an invalid manifest or ledger, it denies every request and gives the
// reason. It checks manifest, model and ledger once, at construction, and the clock at every
// decision. After a withdrawal, a running gate therefore allows requests until it is constructed
// again with a newer ledger, or until the manifest is stale.
class Gate {
 public:
  struct Evidence {
    admission::PublicKey key;      // whose releases are trusted
    std::vector<ModelFile> model;  // the served files: all of the manifest and no others
    // The current ledger. It is verified completely (except attestations), must extend the
    // manifest's note, record the release and agree with the manifest's postures. Empty: the
    // manifest is trusted until it is stale, whatever was withdrawn.
    std::optional<std::filesystem::path> ledger = {};
    std::optional<admission::PublicKey> ledger_key = {};  // empty: the one the manifest names
    // A note kept elsewhere that the ledger must extend. Without a ledger, all requests are denied
    // if this note is newer than the manifest.
    std::optional<std::string> checkpoint = {};
    std::function<std::uint64_t()> clock = {};  // seconds since 1970; empty: the system's clock
  };
  // Never throws because of the content of manifest, ledger or note; kIoError if the machine fails.
  Gate(std::string_view envelope, Evidence evidence);

  // Safe from any number of threads.
  Decision decide(const Request& request) const;
  // Whether the manifest is valid now, whatever the request: kAllowed, or one of the reasons up to
  // kStale.
  Decision standing() const;

  // Empty if the envelope could not be opened: then trust none of its content.
  const std::optional<Manifest>& manifest() const noexcept { return manifest_; }
  // The position of the release in the ledger; empty if no ledger was given, or if the ledger does
  // not record the release.
  std::optional<std::uint64_t> released_at() const noexcept { return released_at_; }

 private:
  struct Kind {  // a generation class with its background
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
  std::optional<Decision> fault_;  // applies to every request
  std::function<std::uint64_t()> clock_;
  std::map<std::string, Kind, std::less<>> kinds_;
};

}  // namespace discreet::release
