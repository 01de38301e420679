// The one-call interface (EVP) takes twice as long as the hash of a node itself.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "discreet/ledger/merkle.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <bit>

#include "discreet/base/error.h"

namespace discreet::ledger {
namespace {

[[noreturn]] void refuse(const char* op, std::string sentence) {
  throw Error(ErrorCode::kInvalidInput, op, std::move(sentence));
}

Digest prefixed(std::uint8_t prefix, ByteView first, ByteView second) {
  SHA256_CTX context;
  Digest digest;
  if (SHA256_Init(&context) != 1 || SHA256_Update(&context, &prefix, 1) != 1 ||
      SHA256_Update(&context, first.data(), first.size()) != 1 ||
      SHA256_Update(&context, second.data(), second.size()) != 1 ||
      SHA256_Final(digest.data(), &context) != 1)
    throw Error(ErrorCode::kIoError, "merkle", "OpenSSL failed in SHA-256");
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

Digest leaf_hash(ByteView leaf) { return prefixed(0, leaf, {}); }
Digest node_hash(const Digest& left, const Digest& right) { return prefixed(1, left, right); }

Frontier::Frontier(std::uint64_t size, std::vector<Digest> roots)
    : size_(size), roots_(std::move(roots)) {
  if (roots_.size() != static_cast<std::size_t>(std::popcount(size_)))
    refuse("Frontier", fmt::format("{} leaves have {} complete subtrees, but {} hashes were given",
                                   size_, std::popcount(size_), roots_.size()));
}

void Frontier::append(const Digest& leaf) {
  Digest hash = leaf;
  for (std::uint64_t bits = size_; bits & 1; bits >>= 1) {
    hash = node_hash(roots_.back(), hash);
    roots_.pop_back();
  }
  roots_.push_back(hash);
  ++size_;
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
    refuse("Tree", fmt::format("the leaves {} to {} of {} are no subtree", begin, end, size()));
  const std::uint64_t n = end - begin;
  if (std::has_single_bit(n)) return levels_[std::countr_zero(n)][begin / n];
  const std::uint64_t middle = begin + split(n);
  return node_hash(range(begin, middle), range(middle, end));
}

Path inclusion_proof(std::uint64_t index, std::uint64_t size, const RangeHash& range) {
  if (index >= size)
    refuse("inclusion_proof", fmt::format("there is no leaf {} in a tree of {}", index, size));
  Path path;
  inclusion(index, 0, size, range, path);
  return path;
}

Path consistency_proof(std::uint64_t size1, std::uint64_t size2, const RangeHash& range) {
  if (size1 == 0 || size1 > size2)
    refuse("consistency_proof",
           fmt::format("a tree of {} leaves does not begin one of {}", size1, size2));
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
  Path whole;
  if (std::has_single_bit(size1)) whole.push_back(root1);
  whole.insert(whole.end(), path.begin(), path.end());
  if (whole.empty() || path.empty()) return false;
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
