#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "discreet/data/csv_rows.h"
#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::data {

// Proof: private_bounds.md

// Bounds of numeric columns without public bounds, released by a separate mechanism before
// training.
//
// Every column has a histogram over kBoundsBuckets public buckets. Their edges are, in ascending
// order,
//   -2^60, -2^59, ..., -2^-30, 2^-30, ..., 2^59, 2^60;
// numbers beyond count in the outermost bucket. A record adds 1 to at most one bucket of each
// column: to none where its number is missing. With k columns the counts get noise of standard
// deviation at least noise_multiplier * sqrt(k): one Gaussian release of that multiplier in which
// every record takes part (q = 1).
//
// The bounds are computed from the noisy counts alone: counts below 4.5 standard deviations count
// as empty (an empty bucket exceeds this with probability below 3.4e-6), then up to 0.5 % of the
// remaining count is cut at either end, and the bounds are the edges around the rest.
inline constexpr int kLeastBoundsExponent = -30;
inline constexpr int kLargestBoundsExponent = 60;
inline constexpr std::size_t kBoundsBuckets =
    2 * (kLargestBoundsExponent - kLeastBoundsExponent) + 1;

// The bucket of a finite number.
std::size_t bounds_bucket(double value) noexcept;

// The release as an event for accountants.
accounting::Event private_bounds_event(double noise_multiplier, accounting::Adjacency adjacency);

struct PrivateBounds {
  std::map<std::string, NumericColumn> bounds;  // by column; public, because they are released
  mechanism::PriorRelease release;              // pass this to the Mechanism of the run
};

// counts: kBoundsBuckets of them for each column, in the order of `columns` (distinct names).
// noise_multiplier: finite, > 0. noise: the stream below; use a key for one release only. Throws
// kInvalidDpConfig if no bucket of a column exceeds the noise; the release has happened and its
// cost is spent nevertheless.
PrivateBounds release_bounds(const std::vector<std::string>& columns,
                             std::vector<std::vector<double>> counts, double noise_multiplier,
                             accounting::Adjacency adjacency, const random::Generator& noise);

// The same for columns of a CSV file or a table, in one pass that holds one row at a time. A row
// with unreadable columns is bad, as in read_csv; a skipped row is not counted. Throws as read_csv
// and above.
PrivateBounds release_csv_bounds(CsvRows rows, const std::vector<std::string>& columns,
                                 double noise_multiplier, accounting::Adjacency adjacency,
                                 const random::Generator& noise,
                                 BadRow on_bad_row = BadRow::kRefuse);

// Reads the columns and throws as release_csv_bounds does, but releases nothing. Returns the
// release that the Mechanism of the run will have to account.
mechanism::PriorRelease plan_csv_bounds(CsvRows rows, const std::vector<std::string>& columns,
                                        double noise_multiplier, accounting::Adjacency adjacency,
                                        BadRow on_bad_row = BadRow::kRefuse);

// The stream of this noise, derived from the run's master key: as mechanism_streams, under its own
// name.
random::Generator private_bounds_stream(const DpConfig& config, const random::Key& master);

}  // namespace discreet::data
