#include "discreet/mechanism/clip/clip_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "ClipStatistics";

double ratio(std::uint64_t count, std::uint64_t of) noexcept {
  return static_cast<double>(count) / std::max(static_cast<double>(of), kEpsDenom);
}

}  // namespace

void ClipStatistics::add(const RecordNorms& norms) {
  if (norms.parts != parts())
    invalid_input(kOperator, "found norms of {} parts; expected {}", norms.parts, parts());
  const std::size_t cells = norms.records * norms.parts;
  if (norms.norms.size() != cells || norms.scales.size() != cells ||
      norms.zeroed.size() != norms.records)
    invalid_input(kOperator, "found {} norms and {} scales for {} records; decide the scales first",
                  norms.norms.size(), norms.scales.size(), norms.records);
  for (std::size_t i = 0; i < norms.records; ++i) {
    const bool zeroed = norms.zeroed[i] != 0;
    zeroed_.push_back(zeroed ? 1 : 0);
    norms_.push_back(norm_from_above(std::span(norms.norms).subspan(i * norms.parts, norms.parts)));
    if (zeroed) {
      ++zeroed_records_;
      continue;
    }
    bool clipped = false;
    for (std::size_t g = 0; g < norms.parts; ++g) {
      if (norms.scale(i, g) >= 1) continue;
      ++clipped_in_part_[g];
      clipped = true;
    }
    if (clipped) ++clipped_;
  }
}

void ClipStatistics::merge(const ClipStatistics& next) {
  if (next.parts() != parts())
    invalid_input(kOperator, "statistics of {} parts cannot be merged with statistics of {} parts",
                  next.parts(), parts());
  norms_.insert(norms_.end(), next.norms_.begin(), next.norms_.end());
  zeroed_.insert(zeroed_.end(), next.zeroed_.begin(), next.zeroed_.end());
  for (std::size_t g = 0; g < parts(); ++g) clipped_in_part_[g] += next.clipped_in_part_[g];
  clipped_ += next.clipped_;
  zeroed_records_ += next.zeroed_records_;
}

double ClipStatistics::clip_fraction() const noexcept {
  return ratio(clipped_, records() - zeroed_records_);
}

double ClipStatistics::group_clip_fraction(std::size_t g) const {
  return ratio(clipped_in_part_.at(g), records() - zeroed_records_);
}

double ClipStatistics::fairness_clip_ratio() const {
  if (parts() == 0) return 1;
  const auto [least, largest] =
      std::minmax_element(clipped_in_part_.begin(), clipped_in_part_.end());
  if (*largest == 0) return 1;
  const std::uint64_t of = records() - zeroed_records_;
  return ratio(*least, of) / std::max(ratio(*largest, of), kEpsDenom);
}

ClipStatistics::Ranked ClipStatistics::quantile(double p) const {
  if (!(p >= 0 && p <= 1)) invalid_input(kOperator, "the quantile is {}; it must be in [0, 1]", p);
  std::vector<double> kept;
  for (std::uint64_t i = 0; i < records(); ++i)
    if (zeroed_[i] == 0) kept.push_back(norms_[i]);
  if (kept.empty()) return {};
  const double rank = std::ceil(p * static_cast<double>(kept.size()));
  const auto place = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  const auto at = kept.begin() + static_cast<std::ptrdiff_t>(std::min(place, kept.size() - 1));
  std::nth_element(kept.begin(), at, kept.end());
  std::uint64_t first = 0;
  while (zeroed_[first] != 0 || norms_[first] != *at) ++first;  // there is one
  return {*at, first};
}

double peft_noise_reduction_factor(const ModelLayout& layout) noexcept {
  if (layout.parameters() == 0) return 1;
  return std::sqrt(ratio(layout.parameters(), layout.private_parameters()));
}

Bytes ClipStatistics::encode() const {
  Bytes norms(norms_.size() * sizeof(double));
  if (!norms.empty()) std::memcpy(norms.data(), norms_.data(), norms.size());
  return cbor::encode(cbor::map(
      {{"norms", norms},
       {"zeroed", zeroed_},
       {"clipped", clipped_},
       {"clipped_in_part", cbor::array({clipped_in_part_.begin(), clipped_in_part_.end()})}}));
}

ClipStatistics ClipStatistics::decode(ByteView bytes) {
  try {
    const cbor::Value value = cbor::decode(bytes);
    ClipStatistics out(0);
    for (const cbor::Value& count : value.at("clipped_in_part").as_array())
      out.clipped_in_part_.push_back(count.as_unsigned());
    out.clipped_ = value.at("clipped").as_unsigned();
    const ByteView zeroed = value.at("zeroed").as_bytes();
    const ByteView norms = value.at("norms").as_bytes();
    if (norms.size() != zeroed.size() * sizeof(double))
      malformed("ClipStatistics::decode", "the norms belong to other records");
    out.zeroed_.assign(zeroed.begin(), zeroed.end());
    out.norms_.resize(zeroed.size());
    if (!norms.empty()) std::memcpy(out.norms_.data(), norms.data(), norms.size());
    if (std::ranges::any_of(out.norms_, [](double norm) { return std::isnan(norm); }))
      malformed("ClipStatistics::decode", "a norm is not a number");
    out.zeroed_records_ = static_cast<std::uint64_t>(std::ranges::count(out.zeroed_, 1));
    if (value.as_map().size() != 4 || out.encode() != Bytes(bytes.begin(), bytes.end()))
      malformed("ClipStatistics::decode", "the fields are not those of statistics");
    return out;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed("ClipStatistics::decode", "{}", error.sentence());
  }
}

}  // namespace discreet::mechanism
