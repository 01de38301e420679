#include "discreet/mechanism/clip/clip_groups_impl.h"

#include <algorithm>

namespace discreet::mechanism {
namespace {

// Bytes of gradients that are read a second time from a thread's second-level cache, or from its
// share of the third-level cache. The smaller one is preferred if it holds enough records.
constexpr std::size_t kSecondCache = std::size_t{1} << 20;
constexpr std::size_t kThirdCache[] = {std::size_t{4} << 20, std::size_t{8} << 20};
constexpr std::size_t kFewest = 4;  // records the kernel adds at once

// How many records of so many bytes are measured before they are summed: what a cache holds, or
// all.
std::size_t window_of(std::uint64_t bytes, std::size_t records, std::size_t second_cache) {
  for (const std::size_t cache : {second_cache, kThirdCache[0], kThirdCache[1]}) {
    const std::uint64_t held = cache / std::max<std::uint64_t>(1, bytes);
    if (held >= kFewest) return std::min<std::uint64_t>(records, held - held % kFewest);
  }
  return records;
}

std::uint64_t elements_of(const std::vector<Piece>& pieces) {
  std::uint64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.end - piece.begin;
  return elements;
}

std::size_t second_cache_of(int threads) {
  return kSecondCache * static_cast<std::size_t>(std::max(1, threads));
}

// By part.
std::vector<std::vector<Piece>> cut(const ModelLayout& layout, const Partition& partition) {
  std::vector<std::vector<Piece>> out(partition.parts());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = partition.part_of[i];
    if (part == Partition::kNone) continue;
    for (std::size_t begin = 0; begin < layout.elements(i); begin += kPiece)
      out[part].push_back(
          {i, begin, std::min<std::size_t>(begin + kPiece, layout.elements(i)), part});
  }
  return out;
}

}  // namespace

std::vector<Group> group_parts(const ModelLayout& layout, const Partition& partition,
                               std::size_t records, std::size_t bytes, int threads) {
  const std::size_t second_cache = second_cache_of(threads);
  const auto pieces = cut(layout, partition);
  std::vector<Group> groups;
  std::uint64_t in_group = 0;
  for (std::uint32_t part = 0; part < partition.parts(); ++part) {
    const std::uint64_t elements = elements_of(pieces[part]);
    if (groups.empty() || (in_group + elements) * bytes * records > second_cache) {
      groups.emplace_back().first_part = part;
      in_group = 0;
    }
    Group& group = groups.back();
    group.pieces.insert(group.pieces.end(), pieces[part].begin(), pieces[part].end());
    group.end_part = part + 1;
    in_group += elements;
    group.window = window_of(in_group * bytes, records, second_cache);
  }
  return groups;
}

std::vector<Group> group_together(const ModelLayout& layout, const Partition& partition,
                                  std::size_t records) {
  Group group;
  for (const std::vector<Piece>& pieces : cut(layout, partition))
    group.pieces.insert(group.pieces.end(), pieces.begin(), pieces.end());
  group.end_part = static_cast<std::uint32_t>(partition.parts());
  group.window = records;
  return {std::move(group)};
}

std::vector<Group> group_together(const ModelLayout& layout, const Partition& partition,
                                  std::size_t records, std::size_t bytes, int threads) {
  std::vector<Group> groups = group_together(layout, partition, records);
  groups.front().window =
      window_of(elements_of(groups.front().pieces) * bytes, records, second_cache_of(threads));
  return groups;
}

}  // namespace discreet::mechanism
