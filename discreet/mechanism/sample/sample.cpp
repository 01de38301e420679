#include "discreet/mechanism/sample/sample.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/random/subsets.h"

namespace discreet::mechanism {
namespace {

using random::Position;
using RecordList = std::vector<std::uint64_t>;

// Each use of the stream has a tensor number of its own, so that no two ever share counters.
std::uint64_t draw_of(SamplingMode mode) noexcept { return 2 * static_cast<std::uint64_t>(mode); }
constexpr std::uint64_t kTruncation = 1;

// Where part s of `parts` parts of n records starts: floor(s n / parts) without overflow.
std::uint64_t cut(std::uint64_t n, std::uint64_t parts, std::uint64_t s) noexcept {
  return n / parts * s + n % parts * s / parts;
}

bool needs_declared_rows(const SamplingPlan& plan) noexcept {
  switch (plan.mode) {
    case SamplingMode::kPoisson:
    case SamplingMode::kBallsAndBins: return false;
    case SamplingMode::kTruncatedPoisson:
    case SamplingMode::kFixedSize:
    case SamplingMode::kShuffledEpoch: return plan.size.has_value();
    case SamplingMode::kSequential: return plan.size.has_value() && plan.steps_per_epoch > 1;
  }
  return true;
}

RecordList keep_at_most(std::uint64_t most, RecordList records, const random::Generator& generator,
                        const Position& position) {
  if (records.size() <= most) return records;
  RecordList kept = random::fixed_size_subset(generator, position, records.size(), most);
  for (std::uint64_t& place : kept) place = records[place];
  return kept;
}

}  // namespace

Sampler::Sampler(SamplingPlan plan, std::uint64_t rows, random::Generator generator)
    : plan_(plan), rows_(rows), generator_(std::move(generator)) {
  plan_.check();
  if (rows_ > random::kIndexLimit)
    invalid_input("Sampler", "found {} records; at most 2^51 can be numbered", rows_);
  // Batches of more records than were declared are not the rare event that the charge covers
  // (apply.md).
  if (plan_.size && rows_ > *plan_.size)
    invalid_config("Sampler",
                   "the data have {} records, but declared_size is {}; declare at least as many as "
                   "there may be",
                   rows_, *plan_.size);
  if (needs_declared_rows(plan_) && rows_ != *plan_.size)
    invalid_config("Sampler",
                   "the data have {} records, but declared_size is {}; {} needs them to be equal: "
                   "correct declared_size, or use POISSON_V1",
                   rows_, *plan_.size, spelling(plan_.mode));
}

RecordList Sampler::batch(std::uint64_t step) {
  generator_.require_own_process();  // also where an epoch was drawn before
  const std::uint64_t draw = draw_of(plan_.mode);
  switch (plan_.mode) {
    case SamplingMode::kPoisson:
      return random::poisson_subset(generator_, Position::at(step, draw), {0, rows_}, *plan_.rate);
    case SamplingMode::kTruncatedPoisson:
      return keep_at_most(
          *plan_.most,
          random::poisson_subset(generator_, Position::at(step, draw), {0, rows_}, *plan_.rate),
          generator_, Position::at(step, draw + kTruncation));
    case SamplingMode::kFixedSize:
      return random::fixed_size_subset(generator_, Position::at(step, draw), rows_, *plan_.batch);
    case SamplingMode::kBallsAndBins:
    case SamplingMode::kShuffledEpoch: {
      const Epoch& now = epoch(step / plan_.steps_per_epoch);
      const std::uint64_t s = step % plan_.steps_per_epoch;
      return RecordList(now.records.begin() + static_cast<std::ptrdiff_t>(now.first[s]),
                        now.records.begin() + static_cast<std::ptrdiff_t>(now.first[s + 1]));
    }
    case SamplingMode::kSequential: break;
  }
  const std::uint64_t s = step % plan_.steps_per_epoch;
  const std::uint64_t begin = cut(rows_, plan_.steps_per_epoch, s);
  RecordList out(cut(rows_, plan_.steps_per_epoch, s + 1) - begin);
  std::iota(out.begin(), out.end(), begin);
  return out;
}

RecordList Sampler::batch(std::uint64_t step, std::uint64_t rank, std::uint64_t world) {
  if (rank >= world)
    invalid_input("Sampler", "rank {} does not exist among {} ranks; ranks start at 0", rank,
                  world);
  RecordList records = batch(step);
  std::erase_if(records, [&](std::uint64_t record) { return record % world != rank; });
  return records;
}

const Sampler::Epoch& Sampler::epoch(std::uint64_t number) {
  if (epoch_ && epoch_->number == number) return *epoch_;
  epoch_.reset();
  const Position position = Position::at(number, draw_of(plan_.mode));
  const std::uint64_t steps = plan_.steps_per_epoch;
  Epoch fresh{number, {}, std::vector<std::uint64_t>(steps + 1)};
  if (plan_.mode == SamplingMode::kShuffledEpoch) {
    fresh.records = random::permutation(generator_, position, rows_);
    for (std::uint64_t s = 0; s <= steps; ++s) fresh.first[s] = cut(rows_, steps, s);
    for (std::uint64_t s = 0; s < steps; ++s)
      std::sort(fresh.records.begin() + static_cast<std::ptrdiff_t>(fresh.first[s]),
                fresh.records.begin() + static_cast<std::ptrdiff_t>(fresh.first[s + 1]));
  } else {
    std::vector<std::uint32_t> bin(rows_);
    random::assign_bins(generator_, position, static_cast<std::uint32_t>(steps), bin);
    for (const std::uint32_t b : bin) ++fresh.first[b + 1];
    std::partial_sum(fresh.first.begin(), fresh.first.end(), fresh.first.begin());
    fresh.records.resize(rows_);
    std::vector<std::uint64_t> next(fresh.first.begin(), fresh.first.end() - 1);
    for (std::uint64_t record = 0; record < rows_; ++record)
      fresh.records[next[bin[record]]++] = record;
  }
  return epoch_.emplace(std::move(fresh));
}

}  // namespace discreet::mechanism
