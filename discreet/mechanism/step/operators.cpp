#include "discreet/mechanism/step/operators.h"

#include "discreet/accounting/accountant.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/clip/adaptive_clip.h"
#include "discreet/mechanism/clip/clip_batch.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/mechanism/clip/ghost/fused.h"
#include "discreet/mechanism/clip/ghost/ghost.h"
#include "discreet/mechanism/noise/budget_allocation.h"
#include "discreet/mechanism/noise/noise.h"
#include "discreet/mechanism/noise/projection.h"
#include "discreet/mechanism/noise/schedule.h"
#include "discreet/mechanism/noise/sensitivity.h"
#include "discreet/mechanism/step/amplification.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::mechanism {
namespace {

// The name of an existing function: it does not compile for another name. A function may have
// overloads, of which no address can be taken; a member cannot be named by a using-declaration.
// NOLINTBEGIN(bugprone-macro-parentheses): a name in parentheses declares nothing.
#define FUNCTION(f) \
  ([] {             \
    using f;        \
    return #f;      \
  }())
#define MEMBER(f) \
  ([] {           \
    (void)&f;     \
    return #f;    \
  }())
// NOLINTEND(bugprone-macro-parentheses)

constexpr Operator kOperators[] = {
    {"UML_OS.DifferentialPrivacy.PreValidation_v1", "Security", "(dp_config, t -> ok)", "PURE",
     "deterministic",
     "Rejects a configuration or step whose guarantee cannot be proven, before anything else "
     "happens.",
     "discreet/config/prevalidation.h", FUNCTION(discreet::prevalidate)},
    {"UML_OS.DifferentialPrivacy.ConfigResolver_v1", "Security",
     "(dp_config, accumulation_context -> resolved_config)", "PURE", "deterministic",
     "Merges defaults, preset, modules, groups, phases and accumulation context into one value per "
     "key.",
     "discreet/config/config_resolve.h", FUNCTION(discreet::resolve)},
    {"UML_OS.DifferentialPrivacy.SensitivityAnalyzer_v1", "Security",
     "(model_layout, norm_history, routing_stats? -> sensitivity_map)", "PURE", "deterministic",
     "States how far a record may reach into each part: declared, or from public or noised norms.",
     "discreet/mechanism/noise/sensitivity.h", FUNCTION(discreet::mechanism::analyze_sensitivity)},
    {"UML_OS.DifferentialPrivacy.PrivacyBudgetAllocator_v1", "Security",
     "(resolved_cfg, sensitivity_map, norm_history -> allocation_map, clip_norm_map)", "PURE",
     "deterministic",
     "Divides one effective multiplier among the parts and gives each its clip bound.",
     "discreet/mechanism/noise/budget_allocation.h",
     FUNCTION(discreet::mechanism::allocate_budget)},
    {"UML_OS.DifferentialPrivacy.Clip_v1", "Security",
     "(gradients, clipping_cfg, max_microbatch -> clipped, norms, clip_stats)", "PURE",
     "deterministic",
     "Scales each record's gradient to its bounds by the configured strategy and adds the results.",
     "discreet/mechanism/clip/clip_batch.h", FUNCTION(discreet::mechanism::clip)},
    {"UML_OS.DifferentialPrivacy.ClipPerSample_v1", "DifferentialPrivacy",
     "(per_sample_grads, clip_norm -> clipped_grads, norms)", "PURE", "deterministic",
     "Multiplies each record's gradient by min(1, C / norm) and adds the results.",
     "discreet/mechanism/clip/clip_rows.h", FUNCTION(discreet::mechanism::clip_per_sample)},
    {"UML_OS.DifferentialPrivacy.GhostClipPerSample_v1", "DifferentialPrivacy",
     "(model, batch, clip_norm -> clipped_grads, norms)", "STATEFUL", "deterministic",
     "Adds gradients clipped to one bound, with norms from activations and output gradients.",
     "discreet/mechanism/clip/ghost/ghost.h", FUNCTION(discreet::mechanism::ghost_clip)},
    {"UML_OS.DifferentialPrivacy.PerLayerClip_v1", "DifferentialPrivacy",
     "(gradients, per_layer_norms -> clipped_gradients, layer_stats)", "PURE", "deterministic",
     "Clips each record's gradient layer by layer, each to its own bound.",
     "discreet/mechanism/clip/clip_rows.h", FUNCTION(discreet::mechanism::clip_per_sample)},
    {"UML_OS.DifferentialPrivacy.PerGroupClip_v1", "DifferentialPrivacy",
     "(gradients, per_group_norms, group_map -> clipped_gradients, group_stats)", "PURE",
     "deterministic", "Clips each record's gradient group by group, each to its own bound.",
     "discreet/mechanism/clip/clip_rows.h", FUNCTION(discreet::mechanism::clip_per_sample)},
    {"UML_OS.DifferentialPrivacy.PerTensorClip_v1", "DifferentialPrivacy",
     "(gradients, clip_norm_map -> clipped_gradients, tensor_stats)", "PURE", "deterministic",
     "Clips each record's gradient tensor by tensor, each to its own bound.",
     "discreet/mechanism/clip/clip_rows.h", FUNCTION(discreet::mechanism::clip_per_sample)},
    {"UML_OS.DifferentialPrivacy.PEFTAwareClipHandler_v1", "Security",
     "(gradients, trainable_mask, public_modules -> clipped, peft_stats)", "PURE", "deterministic",
     "Clips the trainable, private parameters only; public and frozen ones receive no gradient.",
     "discreet/mechanism/clip/clip_plan.h", FUNCTION(discreet::mechanism::plan_peft)},
    {"UML_OS.DifferentialPrivacy.FlashEfficientClip_v1", "Security",
     "(gradients, clip_norm_map, fused_cfg -> clipped_or_averaged, norms, stats)", "STATEFUL",
     "deterministic",
     "Computes norm, scale and sum in one pass per layer, where no bound spans layers.",
     "discreet/mechanism/clip/ghost/fused.h", FUNCTION(discreet::mechanism::fused_clip)},
    {"UML_OS.DifferentialPrivacy.BoundedPrivacyAwareAdaptiveClipNorm_v1", "Security",
     "(norm_history_state, norms_t, adaptive_accounting_mode -> clip_norm_t, norm_history_state', "
     "delta_epsilon_cost)",
     "STATEFUL", "deterministic",
     "Moves a clip bound to median + k MAD of the norms by two noised, accounted counts per part.",
     "discreet/mechanism/clip/adaptive_clip.h", FUNCTION(discreet::mechanism::adapt_clip_norms)},
    {"UML_OS.DifferentialPrivacy.PrivacyBudgetScheduler_v1", "Security",
     "(t, cumulative_epsilon, resolved_cfg, allocation_map, training_phase, effective_batch_size "
     "-> sigma_map_t)",
     "PURE", "deterministic",
     "Gives the base multiplier of a step from the configuration and the accountant's state alone.",
     "discreet/mechanism/noise/schedule.h", MEMBER(discreet::mechanism::Scheduler::sigma)},
    {"UML_OS.DifferentialPrivacy.DPScalingLawProjector_v1", "Security",
     "(sigma_map_t, remaining_steps, model_scale, accountant_hint -> projected_epsilon, "
     "confidence)",
     "PURE", "deterministic",
     "Projects the epsilon at the planned end if the schedule stays as it is; advisory.",
     "discreet/mechanism/noise/projection.h", FUNCTION(discreet::mechanism::project)},
    {"UML_OS.DifferentialPrivacy.AmplificationByShuffling_v1", "Security",
     "(sampling_metadata -> amplification_factor)", "PURE", "deterministic",
     "States how many times less epsilon a participation costs because its step is hidden.",
     "discreet/mechanism/step/amplification.h",
     FUNCTION(discreet::mechanism::amplification_factor)},
    {"UML_OS.DifferentialPrivacy.GenerateNoise_v1", "Security",
     "(shape, stddev_map_t, rng_dp_state, compression_cfg? -> noise, rng_dp_state')", "STATEFUL",
     "stochastic (bitwise-replayable sample stream under replay contract with fixed "
     "seed/offset/profile)",
     "Draws the noise of a step, each part with its deviation, from a stream that is used once.",
     "discreet/mechanism/noise/noise.h", FUNCTION(discreet::mechanism::generate_noise)},
    {"UML_OS.DifferentialPrivacy.Accountant.Update_v1", "Security",
     "(accountant_type, state, sigma_map, sampling_rate, t, delta, subsampling, amplification?, "
     "delta_eps? -> epsilon_t, state')",
     "STATEFUL", "deterministic",
     "Composes an event with those before it and bounds epsilon at delta from both sides.",
     "discreet/accounting/accountant.h", MEMBER(discreet::accounting::Accountant::compose)},
    {"UML_OS.DifferentialPrivacy.MomentsAccountant.Update_v1", "DifferentialPrivacy",
     "(state, sigma_map, sampling_rate, t, delta -> epsilon_t, state_next)", "PURE",
     "deterministic", "Composes by log-moments at integer orders.",
     "discreet/accounting/accountant.h", MEMBER(discreet::accounting::Accountant::compose)},
    {"UML_OS.DifferentialPrivacy.PLDAccountant.Update_v1", "DifferentialPrivacy",
     "(state, sigma_map, sampling_rate, t, delta -> epsilon_t, state_next)", "PURE",
     "deterministic", "Composes privacy loss distributions with certified lower and upper ends.",
     "discreet/accounting/accountant.h", MEMBER(discreet::accounting::Accountant::compose)},
    {"UML_OS.DifferentialPrivacy.RDPAccountant.Update_v1", "DifferentialPrivacy",
     "(state, sigma_map, sampling_rate, t, delta -> epsilon_t, state_next)", "PURE",
     "deterministic",
     "Composes Rényi divergences at a fixed set of orders and converts the sum to epsilon.",
     "discreet/accounting/accountant.h", MEMBER(discreet::accounting::Accountant::compose)},
    {"UML_OS.DifferentialPrivacy.FDPAccountant.Update_v1", "DifferentialPrivacy",
     "(state, sigma_map, sampling_rate, t, delta -> epsilon_t, state_next)", "PURE",
     "deterministic", "Composes trade-off functions with certified lower and upper ends.",
     "discreet/accounting/accountant.h", MEMBER(discreet::accounting::Accountant::compose)},
    {"UML_OS.DifferentialPrivacy.GDPAccountant.Update_v1", "DifferentialPrivacy",
     "(state, sigma_map, sampling_rate, t, delta -> epsilon_t, state_next)", "PURE",
     "deterministic",
     "Composes Gaussian DP; where steps are subsampled, Rényi divergences give the upper end.",
     "discreet/accounting/accountant.h", MEMBER(discreet::accounting::Accountant::compose)},
    {"UML_OS.Error.Emit_v1", "Error",
     "(t, failure_code, failure_operator, diagnostics -> failure_record)", "PURE", "deterministic",
     "Records a failure with code, operator, step, replay token and fingerprint of the unchanged "
     "state.",
     "discreet/mechanism/step/apply.h", MEMBER(discreet::mechanism::Mechanism::emit_error)},
    {"UML_OS.DifferentialPrivacy.Apply_v3", "Security",
     "(gradients, dp_config, t -> noisy_gradients, updated_budget, dp_metrics)", "STATEFUL",
     "deterministic control path; stochastic only via GenerateNoise_v1",
     "Clips, accounts, adds noise and releases one optimizer step, or fails and changes nothing.",
     "discreet/mechanism/step/apply.h", MEMBER(discreet::mechanism::Mechanism::apply)},
};

}  // namespace

std::span<const Operator> operators() noexcept { return kOperators; }

}  // namespace discreet::mechanism
