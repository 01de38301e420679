#include "discreet/ledger/merkle.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "discreet/base/error.h"

namespace discreet::ledger {
namespace {

Digest digest(std::string_view hex) {
  const Bytes bytes = from_hex(hex);
  Digest d;
  std::copy(bytes.begin(), bytes.end(), d.begin());
  return d;
}

Bytes joined(std::uint8_t prefix, ByteView a, ByteView b = {}) {
  Bytes out;
  out.reserve(1 + a.size() + b.size());
  out.push_back(prefix);
  for (const std::uint8_t byte : a) out.push_back(byte);
  for (const std::uint8_t byte : b) out.push_back(byte);
  return out;
}

Digest leaf(std::uint64_t i) { return leaf_hash(bytes_of("leaf " + std::to_string(i))); }

// MTH of RFC 9162 by its recursive definition.
Digest naive(std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return sha256({});
  if (end - begin == 1) return sha256(joined(0, bytes_of("leaf " + std::to_string(begin))));
  std::uint64_t k = 1;
  while (2 * k < end - begin) k *= 2;
  return sha256(joined(1, naive(begin, begin + k), naive(begin + k, end)));
}

constexpr std::uint64_t kMost = 130;

TEST(Merkle, HashesLeavesAsTransparencyDevDoes) {
  EXPECT_EQ(leaf_hash(bytes_of("L123456")),
            digest("395aa064aa4c29f7010acfe3f25db9485bbd4b91897b6ad7ad547639252b4d56"));
  EXPECT_EQ(Frontier().root(),
            digest("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
}

TEST(Merkle, HashesLeavesOfEveryLength) {
  Bytes content;
  for (int size = 0; size < 300; ++size) {
    EXPECT_EQ(leaf_hash(content), sha256(joined(0, content))) << size;
    content.push_back(static_cast<std::uint8_t>(7 * size));
  }
}

TEST(Merkle, TakesManyLeavesAtOnceAsOneByOne) {
  std::vector<std::string> contents;
  for (int i = 0; i < 5000; ++i) contents.push_back("leaf " + std::to_string(i));
  for (const std::size_t begin : {0, 1, 1000, 1023, 1024, 1500})
    for (const std::size_t count : {0, 1, 24, 1024, 1025, 2047, 3500}) {
      Frontier single, many;
      for (std::size_t i = 0; i < begin; ++i) many.append(leaf_hash(bytes_of(contents[i])));
      many.append(
          count, [&](std::size_t i) { return bytes_of(contents[begin + i]); }, 2);
      for (std::size_t i = 0; i < begin + count; ++i)
        single.append(leaf_hash(bytes_of(contents[i])));
      EXPECT_EQ(many.size(), begin + count);
      EXPECT_EQ(many.roots(), single.roots()) << begin << " and " << count;
    }
}

TEST(Merkle, TakesThePublishedConsistencyProofFromSixToEight) {
  const Digest six = digest("76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef");
  const Digest eight = digest("5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
  const Path path = {digest("0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"),
                     digest("ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"),
                     digest("d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7")};
  EXPECT_TRUE(verify_consistency(6, six, 8, eight, path));
  EXPECT_FALSE(verify_consistency(6, eight, 8, six, path));
  EXPECT_FALSE(verify_consistency(5, six, 8, eight, path));
  EXPECT_FALSE(verify_consistency(0, six, 8, eight, path));
  // The leaves of that log are those of the RFC 6962 reference tests.
  Frontier built;
  for (const char* content : {"", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                              "606162636465666768696a6b6c6d6e6f"}) {
    if (built.size() == 6) {
      EXPECT_EQ(built.root(), six);
    }
    built.append(leaf_hash(from_hex(content)));
  }
  EXPECT_EQ(built.root(), eight);
}

TEST(Merkle, RootsAreThoseOfTheDefinitionAtEverySize) {
  Frontier frontier;
  Tree tree;
  for (std::uint64_t n = 0; n <= kMost; ++n) {
    EXPECT_EQ(frontier.root(), naive(0, n)) << n;
    if (n > 0) {
      EXPECT_EQ(tree.range(0, n), naive(0, n)) << n;
    }
    EXPECT_EQ(Frontier(n, frontier.roots()).root(), naive(0, n));
    frontier.append(leaf(n));
    tree.append(leaf(n));
  }
}

TEST(Merkle, EveryInclusionProofUpTo130LeavesHoldsAndNoOtherPlaceDoes) {
  Tree tree;
  for (std::uint64_t i = 0; i < kMost; ++i) tree.append(leaf(i));
  const RangeHash fast = [&](auto begin, auto end) { return tree.range(begin, end); };
  for (std::uint64_t n = 1; n <= kMost; ++n) {
    const Digest root = tree.range(0, n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const Path path = inclusion_proof(i, n, fast);
      if (n <= 40) {
        ASSERT_EQ(path, inclusion_proof(i, n, naive));
      }
      ASSERT_TRUE(verify_inclusion(leaf(i), i, n, path, root)) << i << " of " << n;
      ASSERT_FALSE(verify_inclusion(leaf(i), i + 1, n, path, root));
      ASSERT_FALSE(verify_inclusion(leaf(i + 1), i, n, path, root));
      ASSERT_FALSE(verify_inclusion(leaf(i), n, n, path, root));
      Path longer = path, shorter = path;
      longer.push_back(root);
      ASSERT_FALSE(verify_inclusion(leaf(i), i, n, longer, root));
      if (!path.empty()) {
        shorter.pop_back();
        ASSERT_FALSE(verify_inclusion(leaf(i), i, n, shorter, root));
        Path bent = path;
        bent[i % path.size()][n % 32] ^= 1;
        ASSERT_FALSE(verify_inclusion(leaf(i), i, n, bent, root));
      }
    }
  }
}

TEST(Merkle, EveryConsistencyProofUpTo130LeavesHoldsAndNoOtherPairDoes) {
  Tree tree;
  for (std::uint64_t i = 0; i < kMost; ++i) tree.append(leaf(i));
  const RangeHash fast = [&](auto begin, auto end) { return tree.range(begin, end); };
  for (std::uint64_t n = 1; n <= kMost; ++n) {
    for (std::uint64_t m = 1; m <= n; ++m) {
      const Digest old = tree.range(0, m), now = tree.range(0, n);
      const Path path = consistency_proof(m, n, fast);
      if (n <= 40) {
        ASSERT_EQ(path, consistency_proof(m, n, naive));
      }
      ASSERT_TRUE(verify_consistency(m, old, n, now, path)) << m << " to " << n;
      Digest other = old;
      other[m % 32] ^= 0x10;
      ASSERT_FALSE(verify_consistency(m, other, n, now, path));
      other = now;
      other[n % 32] ^= 0x10;
      ASSERT_FALSE(verify_consistency(m, old, n, other, path));
      ASSERT_FALSE(verify_consistency(0, old, n, now, path));
      ASSERT_FALSE(verify_consistency(n + 1, old, n, now, path));
      Path longer = path, shorter = path;
      longer.push_back(now);
      ASSERT_FALSE(verify_consistency(m, old, n, now, longer));
      if (!path.empty()) {
        shorter.pop_back();
        ASSERT_FALSE(verify_consistency(m, old, n, now, shorter));
      }
    }
  }
}

TEST(Merkle, RefusesWhatIsNoTree) {
  const RangeHash none = [](auto, auto) { return Digest{}; };
  EXPECT_THROW(inclusion_proof(3, 3, none), Error);
  EXPECT_THROW(inclusion_proof(0, 0, none), Error);
  EXPECT_THROW(consistency_proof(0, 3, none), Error);
  EXPECT_THROW(consistency_proof(4, 3, none), Error);
  EXPECT_THROW(Frontier(5, {Digest{}}), Error);
  Tree tree;
  for (std::uint64_t i = 0; i < 8; ++i) tree.append(leaf(i));
  EXPECT_THROW(tree.range(1, 3), Error);
  EXPECT_THROW(tree.range(4, 9), Error);
  EXPECT_THROW(tree.range(4, 4), Error);
}

}  // namespace
}  // namespace discreet::ledger
