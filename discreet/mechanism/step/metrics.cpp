#include "discreet/mechanism/step/metrics.h"

namespace discreet::mechanism {
namespace {

cbor::Value or_null(const std::optional<double>& number) {
  return number ? cbor::Value(*number) : cbor::Value(nullptr);
}

}  // namespace

cbor::Value DpMetrics::to_cbor() const {
  std::vector<cbor::Entry> out = {
      {"clip_fraction", clip_fraction},
      {"group_clip_fraction",
       cbor::array({group_clip_fraction.begin(), group_clip_fraction.end()})},
      {"noise_scale_sigma", noise_scale_sigma},
      {"effective_noise_multiplier", effective_noise_multiplier},
      {"effective_heterogeneous_multiplier", effective_heterogeneous_multiplier},
      {"effective_accumulation_factor", effective_accumulation_factor},
      {"projected_final_epsilon", or_null(projected_final_epsilon)},
      {"norm_p50", norm_p50},
      {"norm_p95", norm_p95},
      {"norm_max", norm_max},
      {"gradient_snr", gradient_snr},
      {"fairness_clip_ratio", fairness_clip_ratio},
      {"scaling_law_confidence", scaling_law_confidence},
      {"peft_noise_reduction_factor", peft_noise_reduction_factor},
      {"accountant_type_used", accountant_type_used},
      {"pld_epsilon_tight", or_null(pld_epsilon_tight)},
      {"zeroed_records", zeroed_records}};
  if (delta_eps) out.push_back({"delta_eps", *delta_eps});
  if (amplification_factor) out.push_back({"amplification_factor", *amplification_factor});
  return cbor::map(std::move(out));
}

}  // namespace discreet::mechanism
