#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "discreet/base/hash.h"

// The Merkle tree of RFC 9162, section 2.1, over SHA-256.
//
//   leaf         SHA-256(00 ‖ d)
//   MTH(D[0:1])  the leaf hash of d0
//   MTH(D[0:n])  SHA-256(01 ‖ MTH(D[0:k]) ‖ MTH(D[k:n])), k the largest power of two below n
//   MTH({})      SHA-256 of nothing
//
// A proof is a list of hashes, deepest first, as the RFC orders them. Positions count from 0.
namespace discreet::ledger {

using Path = std::vector<Digest>;

Digest leaf_hash(ByteView leaf);
Digest node_hash(const Digest& left, const Digest& right);

// A tree whose leaves arrive one after another, stored as the roots of its complete subtrees,
// largest first: at most 64 hashes for any size.
class Frontier {
 public:
  Frontier() = default;
  // The state after `size` leaves. Throws kInvalidInput unless there is one hash for each bit set
  // in `size`.
  Frontier(std::uint64_t size, std::vector<Digest> roots);

  void append(const Digest& leaf);
  // Appends leaf(0), …, leaf(count − 1), given by their contents; several threads call `leaf`.
  void append(std::size_t count, const std::function<ByteView(std::size_t)>& leaf, int threads);
  std::uint64_t size() const noexcept { return size_; }
  Digest root() const;
  const std::vector<Digest>& roots() const noexcept { return roots_; }

 private:
  // The root of a complete subtree of `leaves`, a power of two that divides size_.
  void append_subtree(Digest root, std::uint64_t leaves);

  std::uint64_t size_ = 0;
  std::vector<Digest> roots_;
};

// All leaf hashes and the complete subtrees above them, 64 bytes per leaf; for many proofs.
class Tree {
 public:
  void append(const Digest& leaf);
  std::uint64_t size() const noexcept { return levels_.empty() ? 0 : levels_[0].size(); }
  // The hash of the leaves begin <= i < end, where end - begin is at most the largest power of two
  // that divides begin (any number if begin is 0). Proofs consist of such ranges. Throws
  // kInvalidInput for others.
  Digest range(std::uint64_t begin, std::uint64_t end) const;

 private:
  std::vector<std::vector<Digest>> levels_;
};

// The hash of the leaves begin <= i < end. A proof requests disjoint ranges.
using RangeHash = std::function<Digest(std::uint64_t begin, std::uint64_t end)>;

// Proves that the leaf at `index` is in the tree of `size` leaves. Throws kInvalidInput unless
// index < size.
Path inclusion_proof(std::uint64_t index, std::uint64_t size, const RangeHash& range);
// Proves that the tree of `size1` leaves is a prefix of the tree of `size2`; empty if they are
// equal. Throws kInvalidInput unless 1 <= size1 <= size2.
Path consistency_proof(std::uint64_t size1, std::uint64_t size2, const RangeHash& range);

// RFC 9162, sections 2.1.3.2 and 2.1.4.2. Return false for anything that is not a proof, including
// size1 = 0, because an empty tree proves nothing.
bool verify_inclusion(const Digest& leaf, std::uint64_t index, std::uint64_t size, const Path& path,
                      const Digest& root);
bool verify_consistency(std::uint64_t size1, const Digest& root1, std::uint64_t size2,
                        const Digest& root2, const Path& path);
// Computes the root from an inclusion proof, if its length fits index and size. Used to check a
// receipt, whose root is detached.
bool root_of_inclusion(const Digest& leaf, std::uint64_t index, std::uint64_t size,
                       const Path& path, Digest& root);

}  // namespace discreet::ledger
