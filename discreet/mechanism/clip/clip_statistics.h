#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// What clipping did to the records of a step: the clip statistics of Clip_v1 and the metrics made
// of them. Everything here is confidential, because it is not noised; norm_max is never released.
//
// A record is *clipped in part g* if its scale there is below 1 (a flat bound counts in every part
// that it cut), and *clipped* if it is so in at least one part. A record that was zeroed because it
// was not finite is counted apart and in nothing else.
//
// Statistics of microbatches and ranks are merged in their order, ascending: the result is that of
// one batch. Records are numbered from 0 in that order.
class ClipStatistics {
 public:
  explicit ClipStatistics(std::size_t parts) : clipped_in_part_(parts) {}

  // Takes in the records of a microbatch after decide_scales. Throws kInvalidInput, and takes none,
  // if the number of parts is another or norms and scales are not there for every record.
  void add(const RecordNorms& norms);
  // Appends the records of another: the next microbatch, or the next rank.
  void merge(const ClipStatistics& next);

  std::uint64_t records() const noexcept { return zeroed_.size(); }  // zeroed ones included
  std::uint64_t zeroed() const noexcept { return zeroed_records_; }
  std::size_t parts() const noexcept { return clipped_in_part_.size(); }

  // clip_fraction: clipped records / max(records not zeroed, EPS_DENOM). In [0, 1]; 0 if there is
  // no record.
  double clip_fraction() const noexcept;
  // group_clip_fraction: the same for part g, g < parts().
  double group_clip_fraction(std::size_t g) const;

  // The least group_clip_fraction over the largest (at least EPS_DENOM), in [0, 1]: 1 when all
  // parts are clipped equally often, or none is. It is a ratio between parts of the model, not
  // between people.
  double fairness_clip_ratio() const;

  // A norm of a whole record, sqrt(sum_g n_g^2) from above, and whose it is.
  struct Ranked {
    double norm = 0;
    std::uint64_t record = 0;
    friend bool operator==(const Ranked&, const Ranked&) = default;
  };
  // The nearest-rank quantile over the records that were not zeroed: the ceil(p n)-th smallest
  // norm, p in [0, 1] (else kInvalidInput), at least the first. Of several records with that
  // norm the lowest number is named. {0, 0} if there is none.
  Ranked quantile(double p) const;
  double norm_p50() const { return quantile(0.5).norm; }
  double norm_p95() const { return quantile(0.95).norm; }
  double norm_max() const { return quantile(1).norm; }

  // Deterministic CBOR, and back; kMalformed for bytes that are no statistics. Confidential.
  Bytes encode() const;
  static ClipStatistics decode(ByteView bytes);

  friend bool operator==(const ClipStatistics&, const ClipStatistics&) = default;

 private:
  std::vector<double> norms_;  // of the whole record, one each
  std::vector<std::uint8_t> zeroed_;
  std::vector<std::uint64_t> clipped_in_part_;
  std::uint64_t clipped_ = 0;
  std::uint64_t zeroed_records_ = 0;
};

// peft_noise_reduction_factor = sqrt(d / max(d_private, EPS_DENOM)), d all parameters of the
// layout: how many times longer the noise vector would be if all of them were trained privately, at
// the same clip bound and multiplier (noise of deviation s on n coordinates has expected squared
// norm n s^2). 1 when all are, or there is none.
double peft_noise_reduction_factor(const ModelLayout& layout) noexcept;

}  // namespace discreet::mechanism
