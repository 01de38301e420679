#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/mechanism/clip_ranges_impl.h"
#include "discreet/mechanism/layout.h"

namespace discreet::mechanism {

// How the work of clipping explicit gradients is cut.

// In coordinates:
inline constexpr std::size_t kPiece = 16384;  // the unit of a norm and of a thread's work
inline constexpr std::size_t kShort = 256;    // pieces below it are worked on together,
inline constexpr std::size_t kPack = 2048;    // so many coordinates at once

// Coordinates [begin, end) of a tensor; all of one part.
struct Piece {
  std::size_t tensor;
  std::size_t begin;
  std::size_t end;
  std::uint32_t part;
  bool was_zero = false;  // every bit of its sum, before the first record
  // How many pieces, from this one on, are worked on together; 0: it is with one before.
  std::size_t packed = 1;
};

// Parts [first_part, end_part) that are measured, then summed, for `window` records at a time.
struct Group {
  std::vector<Piece> pieces;  // by part, then by tensor, then by coordinate
  // Pieces with packed != 0, in the order in which they are worked on: neighbours in memory one
  // after the other, also when they are of different parts.
  std::vector<std::size_t> order;
  std::uint32_t first_part = 0;
  std::uint32_t end_part = 0;
  std::size_t window = 0;
};

// One group per part, small neighbours together; or all parts in one, if a flat bound needs every
// norm of a record before anything is summed.
//   bytes: of a value
std::vector<Group> group_parts(const ModelLayout& layout, const Partition& partition,
                               std::size_t records, std::size_t bytes, int threads, bool together);

// All ranges in one group: scales are decided from all norms of a record.
std::vector<Group> group_ranges(std::span<const CoordinateRange> ranges, std::size_t parts,
                                std::size_t records, std::size_t bytes, int threads);

}  // namespace discreet::mechanism
