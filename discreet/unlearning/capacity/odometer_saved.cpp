// The bytes of budgets and of the odometer.
#include <cmath>

#include "discreet/unlearning/capacity/odometer.h"
#include "discreet/unlearning/saved_impl.h"

namespace discreet::unlearning {
namespace {

using cbor::Value;

Value saved(const StreamConstants& k) {
  return cbor::array({static_cast<std::uint64_t>(k.loss), static_cast<std::uint64_t>(k.dimension),
                      k.lambda, k.G_f, k.D, k.R, k.Y});
}

StreamConstants stream_constants(const Value& value) {
  const auto& v = value.as_array();
  if (v.size() != 7) malformed_state("the constants differ");
  return {code_of<Loss>(v[0], 1), v[1].as_unsigned(), v[2].as_float(), v[3].as_float(),
          v[4].as_float(),        v[5].as_float(),    v[6].as_float()};
}

}  // namespace

cbor::Value RhoBudget::save() const { return cbor::array({total_, spent_}); }

RhoBudget RhoBudget::restore(const cbor::Value& value) {
  const auto& parts = value.as_array();
  if (parts.size() != 2) malformed_state("a budget has two parts");
  RhoBudget budget(0);
  budget.total_ = parts[0].as_unsigned();
  budget.spent_ = parts[1].as_unsigned();
  if (static_cast<double>(budget.total_) > kLimit / kUnit || budget.spent_ > budget.total_) {
    malformed_state("a budget is spent beyond its total");
  }
  return budget;
}

Bytes PrivacyOdometer::save() const {
  const OdometerOptions& o = options_;
  std::vector<Value> warnings(warnings_.begin(), warnings_.end());
  return cbor::encode(cbor::map({{"type", "unlearning/odometer/1"},
                                 {"eps_total", o.eps_total},
                                 {"delta_total", o.delta_total},
                                 {"lambda", o.lambda},
                                 {"delta_B", o.delta_B},
                                 {"T", o.T},
                                 {"gamma_learn", o.gamma_learn},
                                 {"gamma_priv", o.gamma_priv},
                                 {"accounting", static_cast<std::uint64_t>(o.accounting)},
                                 {"guarantee", static_cast<std::uint64_t>(o.guarantee)},
                                 {"enforced", saved(o.enforced)},
                                 {"reserve_share", o.reserve},
                                 {"budget", budget_.save()},
                                 {"reserve", reserve_.save()},
                                 {"finalized", finalized_},
                                 {"warming", warming_},
                                 {"m", m_},
                                 {"capacity", capacity_},
                                 {"used", used_},
                                 {"deletes", deletes_},
                                 {"eps_step", eps_step_},
                                 {"delta_step", delta_step_},
                                 {"sigma_step", sigma_step_},
                                 {"share", share_},
                                 {"warnings", cbor::array(std::move(warnings))}}));
}

PrivacyOdometer PrivacyOdometer::restore(ByteView bytes) {
  return restored(bytes, "unlearning/odometer/1", [](const Value& s) {
    OdometerOptions o;
    o.eps_total = s.at("eps_total").as_float();
    o.delta_total = s.at("delta_total").as_float();
    o.lambda = s.at("lambda").as_float();
    o.delta_B = s.at("delta_B").as_float();
    o.T = s.at("T").as_unsigned();
    o.gamma_learn = s.at("gamma_learn").as_float();
    o.gamma_priv = s.at("gamma_priv").as_float();
    o.accounting = code_of<Accounting>(s.at("accounting"), 3);
    o.guarantee = code_of<Guarantee>(s.at("guarantee"), 3);
    o.enforced = stream_constants(s.at("enforced"));
    o.reserve = s.at("reserve_share").as_float();
    PrivacyOdometer odometer(o);
    const RhoBudget budget = RhoBudget::restore(s.at("budget"));
    const RhoBudget reserve = RhoBudget::restore(s.at("reserve"));
    // The totals follow from the options: a state cannot bring more.
    if (budget.total() != odometer.budget_.total() ||
        reserve.total() != odometer.reserve_.total()) {
      malformed_state("the totals differ from those of the options");
    }
    odometer.budget_ = budget;
    odometer.reserve_ = reserve;
    odometer.finalized_ = s.at("finalized").as_bool();
    odometer.warming_ = s.at("warming").as_bool();
    odometer.m_ = s.at("m").as_unsigned();
    odometer.capacity_ = s.at("capacity").as_unsigned();
    odometer.used_ = s.at("used").as_unsigned();
    odometer.deletes_ = s.at("deletes").as_unsigned();
    odometer.eps_step_ = s.at("eps_step").as_float();
    odometer.delta_step_ = s.at("delta_step").as_float();
    odometer.sigma_step_ = s.at("sigma_step").as_float();
    odometer.share_ = s.at("share").as_float();
    for (const Value& warning : s.at("warnings").as_array()) {
      odometer.warnings_.emplace_back(warning.as_text());
    }
    if (odometer.used_ > odometer.capacity_ || odometer.used_ > odometer.deletes_ ||
        !(odometer.share_ >= 0 && odometer.share_ <= RhoBudget::kLimit)) {
      malformed_state("more deletes are counted than the capacity allows");
    }
    return odometer;
  });
}

}  // namespace discreet::unlearning
