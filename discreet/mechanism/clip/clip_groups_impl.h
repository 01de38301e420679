#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/clip_plan.h"

namespace discreet::mechanism {

// How the work of clipping explicit gradients is divided.

inline constexpr std::size_t kPiece = 16384;  // coordinates: the unit of a norm and of a thread

// Coordinates [begin, end) of a tensor; begin is a multiple of kPiece.
struct Piece {
  std::size_t tensor;
  std::size_t begin;
  std::size_t end;
  std::uint32_t part;
  bool was_zero = false;  // every bit of its sum was zero before the first record
};

// Parts [first_part, end_part) whose norms are computed and then summed, for `window` records at a
// time.
struct Group {
  std::vector<Piece> pieces;  // by part, then by tensor, then by coordinate
  std::uint32_t first_part = 0;
  std::uint32_t end_part = 0;
  std::size_t window = 0;
};

// One group per part; small neighbouring parts share a group.
//   bytes: size of a value
std::vector<Group> group_parts(const ModelLayout& layout, const Partition& partition,
                               std::size_t records, std::size_t bytes, int threads);

// All parts in one group, if every norm of a record affects its scales: in windows of records that
// fit a cache, or of all records for only one of the two passes.
std::vector<Group> group_together(const ModelLayout& layout, const Partition& partition,
                                  std::size_t records, std::size_t bytes, int threads);
std::vector<Group> group_together(const ModelLayout& layout, const Partition& partition,
                                  std::size_t records);

}  // namespace discreet::mechanism
