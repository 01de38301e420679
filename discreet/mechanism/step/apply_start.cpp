// What a run must satisfy that starts now, and the bound of ghost clipping that an audit names.
#include "discreet/base/hash.h"
#include "discreet/base/json.h"
#include "discreet/mechanism/clip/ghost/ghost.h"
#include "discreet/mechanism/step/apply_impl.h"

namespace discreet::mechanism {

std::string Mechanism::ghost_bound() const {
  const Fixed& fixed = *fixed_;
  const ClipOptions options = fixed.clip_options();
  std::vector<cbor::Value> layers;
  for (const Tensor& tensor : fixed.layout.tensors())
    if (tensor.is_private())
      layers.push_back(
          cbor::map({{"name", tensor.name},
                     {"shape", cbor::array({tensor.shape.begin(), tensor.shape.end()})}}));
  const double factor =
      sensitivity_factor(fixed.most_records, fixed.most_positions, options, Slots::kShifted);
  return to_json(cbor::map(
             {{"format", "discreet-ghost-bound-1"},
              {"bound_version", kGhostBoundVersion},
              {"proof", "discreet/mechanism/clip/ghost/ghost.md"},
              {"statement",
               "norms of records are never below the exact norms, and one record changes "
               "a computed sum by at most its clip bound times sensitivity_factor"},
              {"layers", cbor::array(std::move(layers))},
              {"layout_hash", ByteView(fixed.layout.hash())},
              {"most_records", fixed.most_records},
              {"most_positions", fixed.most_positions},
              {"binary32_records", options.binary32_records},
              {"unit_roundoff", cbor::map({{"binary32", 0x1p-24}, {"binary64", 0x1p-53}})},
              {"sensitivity_factor", factor},
              {"accounting_adjustment_factor", fixed.dp().accounting_adjustment_factor}})) +
         "\n";
}

void Mechanism::require_start() const {
  const DpConfig& dp = fixed_->dp();
  if (!dp.enabled) return;
  if (!fixed_->router) {
    const Prepared first = prepare(*fixed_, 0, std::nullopt, std::nullopt);
    require_sigma_map(dp, first.layout, first.allocation.plan);
  }
  if (dp.accumulation_context && dp.accumulation_context->current_step != 0)
    invalid_config(
        "Apply_v3",
        "accumulation_context.current_step is {}, but a run starts with microbatch 0 and "
        "counts the others itself; remove accumulation_context",
        dp.accumulation_context->current_step);
  if (!dp.regulated || !dp.clip_ghost) return;
  const std::string own = to_hex(sha256(bytes_of(ghost_bound())));
  if (dp.ghost_bound_hash.value_or("") != own)
    invalid_config(
        "Apply_v3",
        "ghost_bound_hash is {}, but the bound of ghost clipping in this build, for this "
        "layout and batch size, has another SHA-256; write it with 'discreet check "
        "CONFIG --ghost-bound FILE' or discreet.mechanism.ghost_bound, audit it, and set "
        "its SHA-256",
        dp.ghost_bound_hash.value_or("missing"));
}

}  // namespace discreet::mechanism
