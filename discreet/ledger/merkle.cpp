// SHA256_Transform has no successor in EVP, whose calls take twice as long as the hash of a node.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "discreet/ledger/merkle.h"

#include <endian.h>
#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "discreet/base/error.h"
#include "discreet/numerics/parallel.h"

namespace discreet::ledger {
namespace {

constexpr std::size_t kBlock = SHA256_CBLOCK;

// SHA-256 of the first `size` bytes of `blocks` (one or two blocks), which are zero after them.
// OpenSSL's own buffering and padding take as long as hashing so few bytes.
Digest padded(std::uint8_t (&blocks)[2 * kBlock], std::size_t size) {
  static const SHA256_CTX empty = [] {
    SHA256_CTX context;
    if (SHA256_Init(&context) != 1) io_error("merkle", "OpenSSL failed in SHA-256");
    return context;
  }();
  const std::size_t count = size <= kBlock - 9 ? 1 : 2;
  blocks[size] = 0x80;
  blocks[kBlock * count - 2] = static_cast<std::uint8_t>(size >> 5);  // the number of bits
  blocks[kBlock * count - 1] = static_cast<std::uint8_t>(size << 3);
  SHA256_CTX context;
  std::copy(std::begin(empty.h), std::end(empty.h), context.h);
  for (std::size_t i = 0; i < count; ++i) SHA256_Transform(&context, blocks + kBlock * i);
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); i += 4) {
    const std::uint32_t word = htobe32(context.h[i / 4]);
    std::memcpy(digest.data() + i, &word, sizeof word);
  }
  return digest;
}

// The largest power of two below n, n >= 2.
std::uint64_t split(std::uint64_t n) { return std::bit_floor(n - 1); }

// PATH(m, D[n]) of the RFC.
void inclusion(std::uint64_t index, std::uint64_t begin, std::uint64_t end, const RangeHash& range,
               Path& path) {
  if (end - begin == 1) return;
  const std::uint64_t middle = begin + split(end - begin);
  if (index < middle) {
    inclusion(index, begin, middle, range, path);
    path.push_back(range(middle, end));
  } else {
    inclusion(index, middle, end, range, path);
    path.push_back(range(begin, middle));
  }
}

// SUBPROOF(m, D[n], b) of the RFC; size1 counts from `begin`.
void consistency(std::uint64_t size1, std::uint64_t begin, std::uint64_t end, bool known,
                 const RangeHash& range, Path& path) {
  const std::uint64_t n = end - begin;
  if (size1 == n) {
    if (!known) path.push_back(range(begin, end));
    return;
  }
  const std::uint64_t k = split(n);
  if (size1 <= k) {
    consistency(size1, begin, begin + k, known, range, path);
    path.push_back(range(begin + k, end));
  } else {
    consistency(size1 - k, begin + k, end, false, range, path);
    path.push_back(range(begin, begin + k));
  }
}

}  // namespace

Digest leaf_hash(ByteView leaf) {
  constexpr std::uint8_t kPrefix = 0;
  if (leaf.size() > 2 * kBlock - 10) {
    thread_local Sha256 hash;
    return hash.update({&kPrefix, 1}).update(leaf).finish();
  }
  std::uint8_t blocks[2 * kBlock] = {kPrefix};
  std::copy(leaf.begin(), leaf.end(), blocks + 1);
  return padded(blocks, 1 + leaf.size());
}

Digest node_hash(const Digest& left, const Digest& right) {
  std::uint8_t blocks[2 * kBlock] = {1};
  std::memcpy(blocks + 1, left.data(), left.size());
  std::memcpy(blocks + 1 + left.size(), right.data(), right.size());
  return padded(blocks, 1 + left.size() + right.size());
}

Frontier::Frontier(std::uint64_t size, std::vector<Digest> roots)
    : size_(size), roots_(std::move(roots)) {
  if (roots_.size() != static_cast<std::size_t>(std::popcount(size_)))
    invalid_input("Frontier", "{} leaves have {} complete subtrees, but {} hashes were given",
                  size_, std::popcount(size_), roots_.size());
}

void Frontier::append(const Digest& leaf) { append_subtree(leaf, 1); }

void Frontier::append_subtree(Digest root, std::uint64_t leaves) {
  for (std::uint64_t bits = size_ / leaves; bits & 1; bits >>= 1) {
    root = node_hash(roots_.back(), root);
    roots_.pop_back();
  }
  roots_.push_back(root);
  size_ += leaves;
}

void Frontier::append(std::size_t count, const std::function<ByteView(std::size_t)>& leaf,
                      int threads) {
  constexpr std::size_t kSubtree = 1024;
  std::size_t done = 0;
  const auto one_by_one = [&](std::size_t end) {
    for (; done < end; ++done) append(leaf_hash(leaf(done)));
  };
  one_by_one(std::min(count, static_cast<std::size_t>(-size_ % kSubtree)));
  std::vector<Digest> subtrees((count - done) / kSubtree);
  numerics::parallel_items(subtrees.size(), threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Frontier subtree;
      for (std::size_t j = 0; j < kSubtree; ++j)
        subtree.append(leaf_hash(leaf(done + i * kSubtree + j)));
      subtrees[i] = subtree.root();
    }
  });
  for (const Digest& subtree : subtrees) append_subtree(subtree, kSubtree);
  done += subtrees.size() * kSubtree;
  one_by_one(count);
}

Digest Frontier::root() const {
  if (roots_.empty()) return sha256({});
  Digest hash = roots_.back();
  for (auto left = roots_.rbegin() + 1; left != roots_.rend(); ++left)
    hash = node_hash(*left, hash);
  return hash;
}

void Tree::append(const Digest& leaf) {
  Digest hash = leaf;
  for (std::size_t level = 0;; ++level) {
    if (level == levels_.size()) levels_.emplace_back();
    levels_[level].push_back(hash);
    const std::size_t n = levels_[level].size();
    if (n % 2 == 1) return;
    hash = node_hash(levels_[level][n - 2], levels_[level][n - 1]);
  }
}

Digest Tree::range(std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end || end > size() || (begin != 0 && end - begin > (begin & -begin)))
    invalid_input("Tree", "the leaves {} to {} of {} are not a subtree", begin, end, size());
  const std::uint64_t n = end - begin;
  if (std::has_single_bit(n)) return levels_[std::countr_zero(n)][begin / n];
  const std::uint64_t middle = begin + split(n);
  return node_hash(range(begin, middle), range(middle, end));
}

Path inclusion_proof(std::uint64_t index, std::uint64_t size, const RangeHash& range) {
  if (index >= size)
    invalid_input("inclusion_proof", "leaf {} does not exist in a tree of {} leaves", index, size);
  Path path;
  inclusion(index, 0, size, range, path);
  return path;
}

Path consistency_proof(std::uint64_t size1, std::uint64_t size2, const RangeHash& range) {
  if (size1 == 0 || size1 > size2)
    invalid_input("consistency_proof", "a tree of {} leaves is not a prefix of one of {}", size1,
                  size2);
  Path path;
  consistency(size1, 0, size2, true, range, path);
  return path;
}

bool root_of_inclusion(const Digest& leaf, std::uint64_t index, std::uint64_t size,
                       const Path& path, Digest& root) {
  if (index >= size) return false;
  std::uint64_t fn = index, sn = size - 1;
  Digest r = leaf;
  for (const Digest& p : path) {
    if (sn == 0) return false;
    if ((fn & 1) || fn == sn) {
      r = node_hash(p, r);
      while (!(fn & 1) && fn != 0) {
        fn >>= 1;
        sn >>= 1;
      }
    } else {
      r = node_hash(r, p);
    }
    fn >>= 1;
    sn >>= 1;
  }
  root = r;
  return sn == 0;
}

bool verify_inclusion(const Digest& leaf, std::uint64_t index, std::uint64_t size, const Path& path,
                      const Digest& root) {
  Digest found;
  return root_of_inclusion(leaf, index, size, path, found) && found == root;
}

bool verify_consistency(std::uint64_t size1, const Digest& root1, std::uint64_t size2,
                        const Digest& root2, const Path& path) {
  if (size1 == 0 || size1 > size2) return false;
  if (size1 == size2) return path.empty() && root1 == root2;
  if (path.empty()) return false;
  Path whole = path;
  if (std::has_single_bit(size1)) whole.insert(whole.begin(), root1);
  std::uint64_t fn = size1 - 1, sn = size2 - 1;
  while (fn & 1) {
    fn >>= 1;
    sn >>= 1;
  }
  Digest fr = whole[0], sr = whole[0];
  for (auto c = whole.begin() + 1; c != whole.end(); ++c) {
    if (sn == 0) return false;
    if ((fn & 1) || fn == sn) {
      fr = node_hash(*c, fr);
      sr = node_hash(*c, sr);
      while (!(fn & 1) && fn != 0) {
        fn >>= 1;
        sn >>= 1;
      }
    } else {
      sr = node_hash(sr, *c);
    }
    fn >>= 1;
    sn >>= 1;
  }
  return fr == root1 && sr == root2 && sn == 0;
}

}  // namespace discreet::ledger
