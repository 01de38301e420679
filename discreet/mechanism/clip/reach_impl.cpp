#include "discreet/mechanism/clip/reach_impl.h"

#include <algorithm>
#include <array>
#include <map>

#include "discreet/mechanism/clip/clip_groups_impl.h"

namespace discreet::mechanism {
namespace {

constexpr std::size_t kBits = 32;
constexpr std::size_t kWords = kPiece / kBits;
constexpr auto kEverything = [] {
  std::array<std::uint32_t, kWords> out{};
  out.fill(~std::uint32_t{0});
  return out;
}();

}  // namespace

Reach::Reach(const ModelLayout& layout, std::span<const CoordinateRange> ranges,
             std::span<const std::uint8_t> permitted, std::size_t classes)
    : permitted_(permitted.begin(), permitted.end()),
      all_cells_(permitted.size() / classes),
      tensors_(layout.size()) {
  std::map<std::size_t, std::vector<CoordinateRange>> by_tensor;
  for (const CoordinateRange& range : ranges) by_tensor[range.tensor].push_back(range);
  for (auto& [t, own] : by_tensor) {
    Tensor& tensor = tensors_[t];
    const std::size_t elements = layout.elements(t);
    std::ranges::sort(own, {}, &CoordinateRange::begin);
    const auto [first, last] = std::ranges::minmax(own, {}, &CoordinateRange::part);
    tensor.first_cell = first.part;
    tensor.cells = last.part - first.part + 1;
    tensor.pieces = (elements + kPiece - 1) / kPiece;
    add_stripes(tensor, own, elements);
    tensor.words.resize(classes);
    for (std::size_t c = 0; c < classes; ++c) add_masks(tensor, own, elements, c);
  }
}

void Reach::add_stripes(Tensor& tensor, std::span<const CoordinateRange> ranges,
                        std::size_t elements) {
  static_assert(kPiece % kernels::kTile == 0);
  for (const CoordinateRange& range : ranges)
    for (std::size_t begin = range.begin; begin < range.end;) {
      const std::size_t tile = begin - begin % kernels::kTile + kernels::kTile;
      const std::size_t end = std::min(range.end, tile);
      tensor.stripes.push_back({begin, end, range.part - tensor.first_cell});
      begin = end;
    }
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < elements; begin += kPiece) {
    while (at < tensor.stripes.size() && tensor.stripes[at].begin < begin) ++at;
    tensor.first_stripe.push_back(at);
  }
  tensor.first_stripe.push_back(tensor.stripes.size());
}

void Reach::add_masks(Tensor& tensor, std::span<const CoordinateRange> ranges, std::size_t elements,
                      std::size_t c) {
  std::size_t reached = 0;
  for (const CoordinateRange& range : ranges)
    if (permitted_[c * all_cells_ + range.part] != 0) reached += range.end - range.begin;
  if (reached == 0 || reached == elements) {
    tensor.masks.insert(tensor.masks.end(), tensor.pieces,
                        reached == 0 ? nullptr : kEverything.data());
    return;
  }
  std::vector<std::uint32_t>& words = tensor.words[c];
  words.resize(tensor.pieces * kWords);
  for (const CoordinateRange& range : ranges)
    if (permitted_[c * all_cells_ + range.part] != 0)
      for (std::size_t k = range.begin; k < range.end; ++k)
        words[k / kBits] |= std::uint32_t{1} << (k % kBits);
  for (std::size_t piece = 0; piece < tensor.pieces; ++piece) {
    const auto own = std::span(words).subspan(piece * kWords, kWords);
    const bool nothing = std::ranges::all_of(own, [](std::uint32_t word) { return word == 0; });
    tensor.masks.push_back(nothing ? nullptr : own.data());
  }
}

const std::uint32_t* Reach::mask(std::uint32_t c, std::size_t tensor,
                                 std::size_t piece) const noexcept {
  const Tensor& t = tensors_[tensor];
  return t.cells == 0 ? nullptr : t.masks[c * t.pieces + piece];
}

std::span<const kernels::Stripe> Reach::stripes(std::size_t tensor,
                                                std::size_t piece) const noexcept {
  const Tensor& t = tensors_[tensor];
  if (t.cells == 0) return {};
  return std::span(t.stripes).subspan(t.first_stripe[piece],
                                      t.first_stripe[piece + 1] - t.first_stripe[piece]);
}

}  // namespace discreet::mechanism
