#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "discreet/random/key.h"
#include "discreet/random/philox.h"
#include "discreet/random/position.h"

namespace discreet::random {

// What turns (key, counter) into bits.
enum class Algorithm {
  kPhilox4x32,  // the specification's; not cryptographic: a run that uses it is not private
  kAes128Ctr,   // AES-128 in counter mode (NIST SP 800-38A), by OpenSSL or VAES instructions
  kChaCha20,    // ChaCha20 (RFC 8439), by OpenSSL
};

// One stream of random numbers: an algorithm under a key. A function, not a sequence: the value at
// a position depends on the key and the position only, so any range can be drawn by any thread or
// rank, in any order, twice or never. Safe to use from several threads.
class Generator {
 public:
  // stream_key: the key of one stream (Key::derive), taken over. Philox uses its first 8 bytes
  // (little-endian words), AES-128 its first 16, ChaCha20 all 32.
  Generator(Algorithm algorithm, Key stream_key);

  // AES-128-CTR where the processor has AES instructions, ChaCha20 elsewhere. The two give
  // different bits: a run records algorithm() and replays with the constructor above.
  static Generator secure(Key stream_key);

  // The same algorithm under a key derived from this one's (Key::derive): a stream that shares no
  // value with this one. name: not empty.
  Generator fork(std::string_view name) const { return {algorithm_, key_.derive(name)}; }

  // As Key: throws in a process that was forked after the key was made. Everything that draws calls
  // it, so that a forked process draws nothing from its parent's streams.
  void require_own_process() const { key_.require_own_process(); }

  Algorithm algorithm() const noexcept { return algorithm_; }
  bool is_secure() const noexcept { return algorithm_ != Algorithm::kPhilox4x32; }

 private:
  friend class BlockSource;
  Algorithm algorithm_;
  Key key_;
};

// One thread's reader of a generator: holds the expanded key and remembers where it stopped, so
// that consecutive reads need no new set-up. Not for sharing between threads, and not for keeping
// across fork(): the constructor checks the process.
class BlockSource {
 public:
  // Throws as Generator::require_own_process().
  explicit BlockSource(const Generator& generator);
  ~BlockSource();
  BlockSource(BlockSource&&) noexcept;
  BlockSource& operator=(BlockSource&&) = delete;

  // Fills `words` with the blocks of the counters (high, block), (high, block + 1), …; two words a
  // block, an odd number ends with half a block.
  //   Philox:  as philox_fill.
  //   AES:     the counter is the 128-bit big-endian number high · 2^64 + block; words are the
  //            output bytes read as little-endian.
  //   ChaCha:  block is a quarter of a 64-byte ChaCha block c = ⌊block/4⌋. The 32-bit counter of
  //            RFC 8439 is c mod 2^32, the nonce's three words are ⌊c/2^32⌋, high mod 2^32 and
  //            ⌊high/2^32⌋: a bijection of the 126 bits, so nothing overlaps.
  // block + number of blocks must not exceed 2^64 (positions never come near).
  // Throws kIoError when OpenSSL fails.
  void read(std::uint64_t high, std::uint64_t block, std::span<std::uint64_t> words);

 private:
  struct Cipher;
  struct WideAes;
  void seek(std::uint64_t high, std::uint64_t block);

  Algorithm algorithm_;
  PhiloxKey philox_key_{};
  std::unique_ptr<Cipher> cipher_;     // OpenSSL; null for Philox and where wide_aes_ is set
  std::unique_ptr<WideAes> wide_aes_;  // AES on processors with VAES
};

}  // namespace discreet::random
