#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::data {

// Proof: private_bounds.md

// Bounds of numeric columns for which nothing public is known, released by a mechanism of its own
// before training (soundness E3).
//
// Every column has a histogram over kBoundsBuckets public buckets. Their edges are, ascending,
//   -2^60, -2^59, ..., -2^-30, 2^-30, ..., 2^59, 2^60;
// numbers beyond count in the outermost. A record adds 1 to one bucket of each column. With k
// columns the counts get noise of standard deviation noise_multiplier * sqrt(k), never less: one
// Gaussian of that multiplier, with every record taking part (q = 1).
//
// The bounds are computed from the noisy counts alone: counts below 4.5 standard deviations are
// taken as empty (an empty bucket passes with probability below 3.4e-6), then up to 0.5 % of what
// is left is cut at either end, and the bounds are the edges around the rest.
inline constexpr int kLeastBoundsExponent = -30;
inline constexpr int kLargestBoundsExponent = 60;
inline constexpr std::size_t kBoundsBuckets =
    2 * (kLargestBoundsExponent - kLeastBoundsExponent) + 1;

// The bucket of a finite number.
std::size_t bounds_bucket(double value) noexcept;

// What the release is to an accountant.
accounting::Event private_bounds_event(double noise_multiplier, accounting::Adjacency adjacency);

struct PrivateBounds {
  std::map<std::string, NumericColumn> bounds;  // by column; public: they are released
  mechanism::PriorRelease release;              // to be given to the Mechanism of the run
};

// counts: of each column, kBoundsBuckets of them, in the order of `columns` (different names).
// noise_multiplier: finite, > 0. noise: the stream below; a key serves one release only. Throws
// kInvalidDpConfig if no bucket of a column is above the noise: the release was made, and is spent,
// nevertheless.
PrivateBounds release_bounds(const std::vector<std::string>& columns,
                             std::vector<std::vector<double>> counts, double noise_multiplier,
                             accounting::Adjacency adjacency, const random::Generator& noise);

// The same of columns of a CSV file, in one pass that holds one row at a time. A row whose columns
// cannot be read is bad, as in read_csv; one that is skipped counts nowhere. Throws as read_csv and
// above.
PrivateBounds release_csv_bounds(const std::filesystem::path& path, char separator,
                                 const std::vector<std::string>& columns, double noise_multiplier,
                                 accounting::Adjacency adjacency, const random::Generator& noise,
                                 BadRow on_bad_row = BadRow::kRefuse);

// Reads the columns as release_csv_bounds does, throws as it does for what cannot be read, and
// releases nothing: what the release will be to the Mechanism of the run.
mechanism::PriorRelease plan_csv_bounds(const std::filesystem::path& path, char separator,
                                        const std::vector<std::string>& columns,
                                        double noise_multiplier, accounting::Adjacency adjacency,
                                        BadRow on_bad_row = BadRow::kRefuse);

// The stream of this noise from the run's master key: as mechanism_streams, under a name of its
// own.
random::Generator private_bounds_stream(const DpConfig& config, const random::Key& master);

}  // namespace discreet::data
