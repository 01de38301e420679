#include "discreet/mechanism/clip_groups_impl.h"

#include <algorithm>

namespace discreet::mechanism {
namespace {

// Bytes of gradients that are read a second time from a thread's second cache, or from the third,
// of which a thread may count on this much: rather the less, where it holds enough records.
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

void set_order(Group& group) {
  for (std::size_t p = 0; p < group.pieces.size(); ++p)
    if (group.pieces[p].packed != 0) group.order.push_back(p);
  std::stable_sort(group.order.begin(), group.order.end(), [&](std::size_t a, std::size_t b) {
    const Piece &x = group.pieces[a], &y = group.pieces[b];
    return x.tensor != y.tensor ? x.tensor < y.tensor : x.begin < y.begin;
  });
}

}  // namespace

std::vector<Group> group_parts(const ModelLayout& layout, const Partition& partition,
                               std::size_t records, std::size_t bytes, int threads, bool together) {
  const std::size_t second_cache = kSecondCache * static_cast<std::size_t>(std::max(1, threads));
  std::vector<std::vector<Piece>> pieces(partition.parts());
  std::vector<std::uint64_t> elements(partition.parts());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = partition.part_of[i];
    if (part == Partition::kNone) continue;
    elements[part] += layout.elements(i);
    for (std::size_t begin = 0; begin < layout.elements(i); begin += kPiece)
      pieces[part].push_back(
          {i, begin, std::min<std::size_t>(begin + kPiece, layout.elements(i)), part});
  }
  std::vector<Group> groups;
  std::uint64_t in_group = 0;
  for (std::uint32_t part = 0; part < partition.parts(); ++part) {
    const bool joins = together || (in_group + elements[part]) * bytes * records <= second_cache;
    if (groups.empty() || !joins) {
      groups.emplace_back().first_part = part;
      in_group = 0;
    }
    Group& group = groups.back();
    group.pieces.insert(group.pieces.end(), pieces[part].begin(), pieces[part].end());
    group.end_part = part + 1;
    in_group += elements[part];
    group.window = together ? records : window_of(in_group * bytes, records, second_cache);
  }
  for (Group& group : groups) set_order(group);
  return groups;
}

std::vector<Group> group_ranges(std::span<const CoordinateRange> ranges, std::size_t parts,
                                std::size_t records, std::size_t bytes, int threads) {
  const std::size_t second_cache = kSecondCache * static_cast<std::size_t>(std::max(1, threads));
  Group group;
  group.end_part = static_cast<std::uint32_t>(parts);
  std::uint64_t elements = 0;
  for (const CoordinateRange& range : ranges) {
    elements += range.end - range.begin;
    for (std::size_t begin = range.begin; begin < range.end; begin += kPiece)
      group.pieces.push_back(
          {range.tensor, begin, std::min(begin + kPiece, range.end), range.part});
  }
  group.window = window_of(elements * bytes, records, second_cache);
  Piece* leader = nullptr;
  std::size_t held = 0;
  for (Piece& piece : group.pieces) {
    const std::size_t n = piece.end - piece.begin;
    if (leader != nullptr && leader->part == piece.part && leader->tensor == piece.tensor &&
        n < kShort && held + n <= kPack) {
      ++leader->packed;
      piece.packed = 0;
      held += n;
    } else {
      leader = n < kShort ? &piece : nullptr;
      held = n;
    }
  }
  set_order(group);
  return {std::move(group)};
}

}  // namespace discreet::mechanism
