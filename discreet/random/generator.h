#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "discreet/random/key.h"
#include "discreet/random/philox.h"
#include "discreet/random/position.h"

namespace discreet::random {

// The function that maps (key, counter) to bits.
enum class Algorithm {
  kPhilox4x32,  // of the specification; not cryptographic: a run that uses it is not private
  kAes128Ctr,   // AES-128 in counter mode (NIST SP 800-38A), by OpenSSL or VAES instructions
  kChaCha20,    // ChaCha20 (RFC 8439), by OpenSSL
};

// One stream of random numbers: an algorithm and a key. It is a function, not a sequence: the value
// at a position depends only on the key and the position, so any thread or rank can draw any range,
// in any order and any number of times. Safe to use from several threads.
class Generator {
 public:
  // stream_key: the key of one stream (Key::derive); ownership is taken. Philox uses its first 8
  // bytes (little-endian words), AES-128 its first 16, ChaCha20 all 32.
  Generator(Algorithm algorithm, Key stream_key);

  // AES-128-CTR on processors with AES instructions, ChaCha20 on others. The two give different
  // bits: a run records algorithm() and replays with the constructor above.
  static Generator secure(Key stream_key);

  // The same algorithm under a key derived from this key (Key::derive): a stream independent of
  // this one. name: not empty.
  Generator fork(std::string_view name) const { return {algorithm_, key_.derive(name)}; }

  // As Key::require_own_process(): throws in a process forked after the key was created. Every
  // function that draws calls this, so a forked process draws nothing from its parent's streams.
  void require_own_process() const { key_.require_own_process(); }

  Algorithm algorithm() const noexcept { return algorithm_; }
  bool is_secure() const noexcept { return algorithm_ != Algorithm::kPhilox4x32; }

 private:
  friend class BlockSource;
  Algorithm algorithm_;
  Key key_;
};

// The reader that one thread uses on a generator. It holds the expanded key and remembers its
// place, so that consecutive reads need no new set-up. Do not share it between threads or keep it
// across fork(): only the constructor checks the process.
class BlockSource {
 public:
  // Throws as Generator::require_own_process().
  explicit BlockSource(const Generator& generator);
  ~BlockSource();
  BlockSource(BlockSource&&) noexcept;
  BlockSource& operator=(BlockSource&&) = delete;

  // Fills `words` with the blocks of the counters (high, block), (high, block + 1), …, two words
  // per block. An odd number of words ends with half a block.
  //   Philox:  as philox_fill.
  //   AES:     the counter is the 128-bit big-endian number high · 2^64 + block; words are the
  //            output bytes read as little-endian.
  //   ChaCha:  block is a quarter of the 64-byte ChaCha block c = ⌊block/4⌋. The 32-bit counter of
  //            RFC 8439 is c mod 2^32, the nonce's three words are ⌊c/2^32⌋, high mod 2^32 and
  //            ⌊high/2^32⌋: a bijection of the 126 bits, so nothing overlaps.
  // block + the number of blocks must not exceed 2^64; positions are always far below.
  // Throws kIoError if OpenSSL fails.
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
