#pragma once

#include <cstdint>
#include <string_view>

#include "discreet/base/bytes.h"
#include "discreet/base/secret_memory.h"

namespace discreet::random {

// A secret of 256 bits in secret memory (secret_memory.h). It can be moved but not copied, has no
// text form, and is overwritten when it is destroyed.
//
// A run has one master key. Each use of randomness draws from its own stream, whose key is derived
// from the master key; the key of one stream reveals nothing about another.
//
// A secret key belongs to the process that created or read it. A forked process holds a copy, and
// would add the same noise to other sums, whose difference would then contain no noise. So every
// function that draws from a key first calls require_own_process().
class Key {
 public:
  static constexpr std::size_t kSize = 32;

  // 256 bits from the operating system. Throws kIoError if it cannot provide them.
  static Key from_system();

  // The key that an insecure run derives from its configured seed, any 64-bit value. The seed is
  // public, so draws from this key give no privacy; the caller must record that.
  static Key from_seed(std::uint64_t seed);

  // A stored key. Throws kMalformed unless `bytes` has exactly 32.
  static Key from_bytes(ByteView bytes);

  // The key of one stream: HKDF-Expand (RFC 5869) with SHA-256, this key as the pseudo-random key
  // and "discreet/stream/1/" + name as info, 32 bytes. Throws kInvalidInput if name is empty.
  Key derive(std::string_view name) const;

  // The secret itself, for the key file and the ciphers. The view borrows from this object; it is
  // empty after a move.
  ByteView secret_bytes() const noexcept { return bytes_; }

  // Throws kRngConsumptionViolation in a process that was forked after this key, or the key it was
  // derived from, was created. Keys of a public seed may be used in any process.
  void require_own_process() const;

  Key(Key&&) noexcept = default;
  Key& operator=(Key&&) noexcept = default;
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

 private:
  explicit Key(std::uint64_t process) : bytes_(kSize), process_(process) {}
  SecretBytes bytes_;
  std::uint64_t process_;  // this_process() at creation; kAnyProcess for a public seed
};

// A number that fork() changes in the child: no descendant of a process ever has the number under
// which that process created a key. Throws kIoError if the system cannot detect forks.
std::uint64_t this_process();

// The names of a run's streams. Different uses have different names.
namespace stream {
inline constexpr std::string_view kNoise = "noise";
inline constexpr std::string_view kSampling = "sampling";
inline constexpr std::string_view kInitialisation = "initialisation";
}  // namespace stream

// Reads a seed from text: decimal digits only, a value in {0 … 2^64 − 1}. Throws kInvalidDpConfig
// for anything else: a sign, a space, a fraction, a larger number.
std::uint64_t parse_seed(std::string_view text);

}  // namespace discreet::random
