#include "discreet/mechanism/clip/clip_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_ranges_impl.h"
#include "discreet/mechanism/clip/clip_rows.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "Clip_v1";

// Runs f on this rank; returns if it succeeded on all. Otherwise every rank throws.
template <class F>
void together(Collective& collective, F f) {
  std::exception_ptr failure;
  try {
    f();
  } catch (...) {
    failure = std::current_exception();
  }
  const double failed = failure ? 1 : 0;
  const std::vector<double> all = collective.all_gather({&failed, 1});
  if (failure) std::rethrow_exception(failure);
  const auto first = std::find(all.begin(), all.end(), 1.0);
  if (first != all.end())
    invalid_gradient(kOperator,
                     "rank {} could not clip its gradients, so no rank added any; see its error",
                     first - all.begin());
}

// Fails in the same way on all ranks, because all see the same holders.
void check_holders(Collective& collective, const ModelLayout& shard, const Partition& partition) {
  std::vector<double> held(shard.size());
  for (std::size_t i = 0; i < shard.size(); ++i) held[i] = shard.tensors()[i].is_private() ? 1 : 0;
  const std::vector<double> all = collective.all_gather(held);
  for (std::size_t i = 0; i < shard.size(); ++i) {
    double holders = 0;
    for (std::size_t k = i; k < all.size(); k += shard.size()) holders += all[k];
    if (holders != (partition.part_of[i] == Partition::kNone ? 0 : 1))
      invalid_config(kOperator,
                     "tensor {} is held by {} ranks; a private tensor must be held by exactly one, "
                     "others by none",
                     shard.tensors()[i].name, holders);
  }
}

// Combines the norms of the parts that each rank holds to norms of whole gradients.
void combine(Collective& collective, RecordNorms& norms) {
  const std::size_t world = static_cast<std::size_t>(collective.world_size());
  std::vector<double> own = norms.norms;
  own.insert(own.end(), norms.zeroed.begin(), norms.zeroed.end());
  const std::vector<double> all = collective.all_gather(own);
  std::vector<double> pieces(world);
  for (std::size_t i = 0; i < norms.records; ++i) {
    for (std::size_t r = 0; r < world; ++r)
      if (all[r * own.size() + norms.norms.size() + i] != 0) norms.zeroed[i] = 1;
    for (std::size_t g = 0; g < norms.parts; ++g) {
      const std::size_t at = i * norms.parts + g;
      for (std::size_t r = 0; r < world; ++r) pieces[r] = all[r * own.size() + at];
      norms.norms[at] = norms.zeroed[i] != 0 ? 0 : norm_from_above(pieces);
    }
  }
}

}  // namespace

template <class Real>
RecordNorms clip_across_ranks(Collective& collective, const ModelLayout& layout,
                              const PerSampleGradients<Real>& gradients, const ClipPlan& plan,
                              const ClipOptions& options, GradientSum& sum) {
  GradientSum total(layout);
  RecordNorms norms;
  together(collective, [&] {
    check_sum(kOperator, layout, sum);
    norms = clip_per_sample(layout, gradients, plan, options, total);
  });
  collective.all_reduce_sum(total.values());
  for (std::size_t k = 0; k < total.values().size(); ++k) sum.values()[k] += total.values()[k];
  return norms;
}

ModelLayout shard_of(const ModelLayout& layout, std::span<const bool> held) {
  if (held.size() != layout.size())
    invalid_input("shard_of", "found {} entries; expected one for each of {} tensors", held.size(),
                  layout.size());
  std::vector<Tensor> tensors(layout.tensors().begin(), layout.tensors().end());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    tensors[i].trainable = tensors[i].trainable && held[i];
  return ModelLayout(std::move(tensors));
}

template <class Real>
RecordNorms clip_sharded(Collective& collective, const ModelLayout& shard,
                         const PerSampleGradients<Real>& gradients, const ClipPlan& plan,
                         const ClipOptions& options, GradientSum& sum) {
  Partition own = plan.partition;
  together(collective, [&] {
    if (own.part_of.size() != shard.size())
      invalid_config(
          kOperator,
          "the partition covers {} tensors, but the shard has {}; shard the partitioned layout",
          own.part_of.size(), shard.size());
  });
  check_holders(collective, shard, plan.partition);
  for (std::size_t i = 0; i < shard.size(); ++i)
    if (!shard.tensors()[i].is_private()) own.part_of[i] = Partition::kNone;

  const double records = static_cast<double>(gradients.records);
  const std::vector<double> counts = collective.all_gather({&records, 1});
  RecordNorms norms;
  together(collective, [&] {
    if (std::any_of(counts.begin(), counts.end(), [&](double n) { return n != counts[0]; }))
      invalid_gradient(kOperator,
                       "the ranks have different numbers of records; every rank must hold its "
                       "tensors of all records");
    norms = per_sample_norms(shard, gradients, own, options);
    // Every check that could reject the sum runs before any rank adds to its own.
    RecordNorms none;
    none.parts = norms.parts;
    decide_scales(plan, none);
    check_sum(kOperator, shard, sum);
  });
  combine(collective, norms);
  decide_scales(plan, norms);
  add_scaled(shard, gradients, own, norms, options, sum);
  return norms;
}

template RecordNorms clip_across_ranks(Collective&, const ModelLayout&,
                                       const PerSampleGradients<float>&, const ClipPlan&,
                                       const ClipOptions&, GradientSum&);
template RecordNorms clip_across_ranks(Collective&, const ModelLayout&,
                                       const PerSampleGradients<double>&, const ClipPlan&,
                                       const ClipOptions&, GradientSum&);
template RecordNorms clip_sharded(Collective&, const ModelLayout&, const PerSampleGradients<float>&,
                                  const ClipPlan&, const ClipOptions&, GradientSum&);
template RecordNorms clip_sharded(Collective&, const ModelLayout&,
                                  const PerSampleGradients<double>&, const ClipPlan&,
                                  const ClipOptions&, GradientSum&);

}  // namespace discreet::mechanism
