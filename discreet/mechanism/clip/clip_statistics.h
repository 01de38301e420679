#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Statistics of clipping in a step: the clip statistics of Clip_v1 and the metrics derived from
// them. They have no noise and are therefore all confidential; norm_max is never released.
//
// A record is *clipped in part g* if its scale there is below 1 (a flat bound counts in every part
// that it reduces), and *clipped* if it is clipped in at least one part. A record that was zeroed
// because it was not finite is counted separately and in nothing else.
//
// Merge the statistics of microbatches and ranks in ascending order: the result equals that of one
// batch. Records are numbered from 0 in that order.
class ClipStatistics {
 public:
  explicit ClipStatistics(std::size_t parts) : clipped_in_part_(parts) {}

  // Adds the records of a microbatch after decide_scales. Throws kInvalidInput and adds none if the
  // number of parts differs, or if norms and scales are missing for a record.
  void add(const RecordNorms& norms);
  // Appends the records of the next microbatch or the next rank.
  void merge(const ClipStatistics& next);

  std::uint64_t records() const noexcept { return zeroed_.size(); }  // including zeroed ones
  std::uint64_t zeroed() const noexcept { return zeroed_records_; }
  std::size_t parts() const noexcept { return clipped_in_part_.size(); }

  // clip_fraction: clipped records / max(records not zeroed, EPS_DENOM). In [0, 1]; 0 without
  // records.
  double clip_fraction() const noexcept;
  // group_clip_fraction: the same for part g, g < parts().
  double group_clip_fraction(std::size_t g) const;

  // The smallest group_clip_fraction divided by the largest (at least EPS_DENOM), in [0, 1]: 1 if
  // all parts are clipped equally often, or none is. It compares parts of the model, not people.
  double fairness_clip_ratio() const;

  // The norm of a whole record, sqrt(sum_g n_g^2) rounded up, and the number of the record.
  struct Ranked {
    double norm = 0;
    std::uint64_t record = 0;
    friend bool operator==(const Ranked&, const Ranked&) = default;
  };
  // The nearest-rank quantile over the records that were not zeroed: the ceil(p n)-th smallest
  // norm, at least the first; p in [0, 1], otherwise kInvalidInput. Of several records with that
  // norm, the one with the lowest number. {0, 0} without records.
  Ranked quantile(double p) const;
  double norm_p50() const { return quantile(0.5).norm; }
  double norm_p95() const { return quantile(0.95).norm; }
  double norm_max() const { return quantile(1).norm; }

  // Deterministic CBOR; decode throws kMalformed for bytes that do not encode statistics.
  // Confidential.
  Bytes encode() const;
  static ClipStatistics decode(ByteView bytes);

  friend bool operator==(const ClipStatistics&, const ClipStatistics&) = default;

 private:
  std::vector<double> norms_;  // of the whole record, one per record
  std::vector<std::uint8_t> zeroed_;
  std::vector<std::uint64_t> clipped_in_part_;
  std::uint64_t clipped_ = 0;
  std::uint64_t zeroed_records_ = 0;
};

// peft_noise_reduction_factor = sqrt(d / max(d_private, EPS_DENOM)), d all parameters of the
// layout: how many times longer the noise vector would be if all of them were trained privately, at
// the same clip bound and multiplier (noise of deviation s on n coordinates has expected squared
// norm n s^2). 1 if all are private, or if there are none.
double peft_noise_reduction_factor(const ModelLayout& layout) noexcept;

}  // namespace discreet::mechanism
