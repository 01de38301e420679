#include "discreet/base/sqlite_gaps_impl.h"

#include <algorithm>
#include <cstddef>

namespace discreet {

void zero_gaps(std::span<std::uint8_t> page, bool first) noexcept {
  constexpr std::size_t kFileHeader = 100, kLeaf = 8, kInterior = 12, kFreeBlock = 4;
  const std::size_t head = first ? kFileHeader : 0;
  if (page.size() < head + kInterior) return;
  const auto number = [&](std::size_t at) -> std::size_t { return page[at] << 8 | page[at + 1]; };
  const auto zero = [&](std::size_t begin, std::size_t end) {
    std::fill(page.begin() + static_cast<std::ptrdiff_t>(begin),
              page.begin() + static_cast<std::ptrdiff_t>(end), std::uint8_t{0});
  };
  const std::uint8_t type = page[head];
  const bool interior = type == 2 || type == 5;
  if (!interior && type != 10 && type != 13) return;
  const std::size_t pointers = head + (interior ? kInterior : kLeaf) + 2 * number(head + 3);
  std::size_t cells = number(head + 5);
  if (cells == 0) cells = std::size_t{1} << 16;  // as the format spells 65536
  if (pointers > cells || cells > page.size()) return;
  zero(pointers, cells);
  for (std::size_t at = number(head + 1), least = cells; at != 0;) {
    if (at < least || at + kFreeBlock > page.size()) return;
    const std::size_t end = at + number(at + 2);
    if (end < at + kFreeBlock || end > page.size()) return;
    zero(at + kFreeBlock, end);
    at = number(at);
    least = end;
  }
}

}  // namespace discreet
