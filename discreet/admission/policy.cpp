#include "discreet/admission/policy.h"

#include <fmt/format.h>

#include "discreet/base/cbor.h"

namespace discreet::admission {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang 14 requires this

cbor::Value texts(const std::vector<std::string>& items) {
  return cbor::array(std::vector<cbor::Value>(items.begin(), items.end()));
}
cbor::Value numbers(const std::vector<std::uint32_t>& items) {
  return cbor::array(std::vector<cbor::Value>(items.begin(), items.end()));
}

cbor::Value value_of(const DepthProfile& profile) {
  const cbor::Value where =
      std::visit(Overloaded{[](const DepthBand& b) {
                              return cbor::array({"depth", b.from.units, b.to.units});
                            },
                            [](const LayerBand& b) {
                              return cbor::array({"layers", b.first, b.last});
                            },
                            [](const ModuleSet& s) {
                              return cbor::array({"modules", texts(s.modules)});
                            },
                            [](const AdapterBound& a) {
                              return cbor::array({"adapter", a.adapter});
                            },
                            [](const WholeModel&) { return cbor::array({"whole"}); }},
                 profile.where);
  return cbor::map({{"schema", kProfileSchema},
                    {"where", where},
                    {"heads", numbers(profile.heads)},
                    {"experts", numbers(profile.experts)}});
}

cbor::Value value_of(const ClassPolicy& c) {
  return cbor::map(
      {{"clip_norm", c.clip_norm.units},
       {"noise_multiplier", c.noise_multiplier.units},
       {"most_occurrences", c.most_occurrences},
       {"sensitive", c.sensitive},
       {"profile", value_of(c.profile)},
       {"amplified", c.amplified ? cbor::array({c.amplified->rate.units, c.amplified->steps,
                                                c.amplified->delta.units})
                                 : cbor::Value(nullptr)}});
}

}  // namespace

DepthProfile sensitive_profile() {
  return {DepthBand{{Scaled::kUnit / 10 * 7}, {Scaled::kUnit}}, {}, {}};
}

std::string_view to_string(CorpusAccountant accountant) noexcept {
  switch (accountant) {
    case CorpusAccountant::kRdp: return "rdp";
    case CorpusAccountant::kMoments: return "moments";
    case CorpusAccountant::kPld: return "pld";
  }
  return "?";
}

std::string_view to_string(BlockClipping clipping) noexcept {
  return clipping == BlockClipping::kFlat ? "flat" : "per_block";
}

std::string describe(const DepthProfile& profile) {
  std::string text = std::visit(
      Overloaded{
          [](const DepthBand& b) {
            return fmt::format("depth {} to {}", b.from.to_text(), b.to.to_text());
          },
          [](const LayerBand& b) { return fmt::format("layers {} to {}", b.first, b.last); },
          [](const ModuleSet& s) { return fmt::format("modules {}", fmt::join(s.modules, " ")); },
          [](const AdapterBound& a) {
            return a.adapter.empty() ? std::string("the attested adapter")
                                     : fmt::format("adapter {}", a.adapter);
          },
          [](const WholeModel&) { return std::string("the whole model"); }},
      profile.where);
  if (!profile.heads.empty()) text += fmt::format(", heads {}", fmt::join(profile.heads, " "));
  if (!profile.experts.empty())
    text += fmt::format(", experts {}", fmt::join(profile.experts, " "));
  return text;
}

Bytes encode(const DepthProfile& profile) { return cbor::encode(value_of(profile)); }

Bytes encode(const Policy& p) {
  std::vector<cbor::Entry> blocks, classes;
  for (const auto& [module, noise] : p.blocks) blocks.push_back({module, noise.units});
  for (const auto& [name, c] : p.classes) classes.push_back({name, value_of(c)});
  std::vector<cbor::Value> keys, revoked;
  for (const TrustedKey& k : p.keys)
    keys.push_back(cbor::array({k.name, cbor::Value(k.key.bytes()), texts(k.classes)}));
  for (const KeyId& id : p.revoked) revoked.push_back(cbor::Value(id));
  std::vector<cbor::Entry> settings = {
      {"corpus", p.corpus},
      {"accountant", to_string(p.accountant)},
      {"clip_norm_floor", p.clip_norm_floor.units},
      {"noise_multiplier_floor", p.noise_multiplier_floor.units},
      {"most_validity_seconds", p.most_validity_seconds},
      {"epoch_seconds", p.epoch_seconds},
      {"retention_epochs", p.retention_epochs},
      {"noise", p.noise.units},
      {"blocks", cbor::map(std::move(blocks))},
      {"clipping", to_string(p.clipping)},
      {"classes", cbor::map(std::move(classes))},
      {"keys", cbor::array(std::move(keys))},
      {"authority", p.authority ? cbor::Value(p.authority->bytes()) : cbor::Value(nullptr)},
      {"revoked", cbor::array(std::move(revoked))}};
  if (!p.accept_unbound.empty())
    settings.push_back(
        {"accept_unbound", cbor::array({p.accept_unbound.begin(), p.accept_unbound.end()})});
  return cbor::encode(cbor::array({"discreet.policy.v1", cbor::map(std::move(settings))}));
}

Digest hash_of(const Policy& policy) { return sha256(encode(policy)); }

}  // namespace discreet::admission
