#pragma once

#include <cstdint>
#include <string_view>

#include "discreet/base/bytes.h"
#include "discreet/base/secret_memory.h"

namespace discreet::random {

// A secret of 256 bits, in secret memory (secret_memory.h). It moves and never copies, has no text
// form, and its bytes are overwritten when it is destroyed.
//
// A run holds one master key; every use of randomness draws from its own stream, whose key is
// derived from the master. Nobody who learns one stream's key learns another's.
//
// A secret key belongs to the process that made or read it. A process forked from that one holds a
// copy, and would draw the same noise for other sums: their difference has none. So whatever draws
// from a key calls require_own_process() first.
class Key {
 public:
  static constexpr std::size_t kSize = 32;

  // 256 bits from the operating system. Throws kIoError when it has none to give.
  static Key from_system();

  // The key that an insecure run derives from its configured seed. Every value is accepted.
  // The seed is public, so whoever draws from such a key is not private; the caller records that.
  static Key from_seed(std::uint64_t seed);

  // A stored key. Throws kMalformed unless `bytes` has exactly 32.
  static Key from_bytes(ByteView bytes);

  // The key of one stream: HKDF-Expand (RFC 5869) with SHA-256, this key as the pseudo-random key
  // and "discreet/stream/1/" + name as info, 32 bytes. name: not empty, else kInvalidInput.
  Key derive(std::string_view name) const;

  // The secret itself, for the file that keeps it and for the ciphers. Borrowed. Nothing of a key
  // that was moved from.
  ByteView secret_bytes() const noexcept { return bytes_; }

  // Throws kRngConsumptionViolation in a process that was forked after this key, or the one it
  // derives from, was made. Keys of a public seed may be used anywhere.
  void require_own_process() const;

  Key(Key&&) noexcept = default;
  Key& operator=(Key&&) noexcept = default;
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

 private:
  explicit Key(std::uint64_t process) : bytes_(kSize), process_(process) {}
  SecretBytes bytes_;
  std::uint64_t process_;  // this_process() where the key was made; kAnyProcess: of a public seed
};

// A number that fork() changes in the child: no descendant of a process has the number under which
// that process made anything. Throws kIoError if the system cannot watch for forks.
std::uint64_t this_process();

// The streams of a run. Two different uses never share a name.
namespace stream {
inline constexpr std::string_view kNoise = "noise";
inline constexpr std::string_view kSampling = "sampling";
inline constexpr std::string_view kInitialisation = "initialisation";
}  // namespace stream

// Reads a seed from text: decimal digits only, a value in {0 … 2^64 − 1}.
// Throws kInvalidDpConfig for anything else: a sign, a space, a fraction, a larger number.
std::uint64_t parse_seed(std::string_view text);

}  // namespace discreet::random
