// The bytes of filters and of the odometer.
#include <cmath>
#include <string>

#include "discreet/accounting/filter.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::accounting {

namespace {

[[noreturn]] void bad_state(const std::string& why) {
  malformed("filter", "{}; pass the bytes that save returned", why);
}

// Reads with `read`, every failure as kMalformed.
template <class Read>
auto decoded(ByteView bytes, const char* type, std::size_t fields, const Read& read) {
  try {
    const cbor::Value state = cbor::decode(bytes);
    if (state.at("type").as_text() != type || state.as_map().size() != fields) {
      bad_state("the state has another type");
    }
    return read(state);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    bad_state(error.sentence());
  }
}

}  // namespace

cbor::Value SumRoundedUp::to_cbor() const { return cbor::array({high_, low_}); }

SumRoundedUp SumRoundedUp::from_cbor(const cbor::Value& value) {
  const auto& parts = value.as_array();
  if (parts.size() != 2) bad_state("a sum must have two parts");
  SumRoundedUp sum;
  sum.high_ = parts[0].as_float();
  sum.low_ = parts[1].as_float();
  if (!(sum.high_ >= 0 && std::isfinite(sum.low_) && sum.upper() >= 0)) {
    bad_state("a sum is negative or NaN");
  }
  return sum;
}

Bytes RdpFilter::save() const {
  std::vector<cbor::Value> rows;
  rows.reserve(orders_.size());
  for (std::size_t i = 0; i < orders_.size(); ++i) {
    rows.push_back(cbor::array({orders_[i], budgets_[i], spent_[i].to_cbor()}));
  }
  return cbor::encode(
      cbor::map({{"type", "rdp_filter"}, {"orders", cbor::array(std::move(rows))}}));
}

RdpFilter RdpFilter::restore(ByteView bytes) {
  return decoded(bytes, "rdp_filter", 2, [](const cbor::Value& state) {
    RdpFilter filter;
    for (const auto& row : state.at("orders").as_array()) {
      const auto& parts = row.as_array();
      if (parts.size() != 3) bad_state("an order must have a budget and a sum");
      filter.orders_.push_back(parts[0].as_float());
      filter.budgets_.push_back(parts[1].as_float());
      filter.spent_.push_back(SumRoundedUp::from_cbor(parts[2]));
      if (!(filter.orders_.back() > 1 && std::isfinite(filter.orders_.back()) &&
            filter.budgets_.back() >= 0 && std::isfinite(filter.budgets_.back()))) {
        bad_state("an order or a budget is out of range");
      }
    }
    if (filter.orders_.empty()) bad_state("there are no orders");
    return filter;
  });
}

Bytes ZcdpFilter::save() const {
  return cbor::encode(
      cbor::map({{"type", "zcdp_filter"}, {"budget", budget_}, {"spent", spent_.to_cbor()}}));
}

ZcdpFilter ZcdpFilter::restore(ByteView bytes) {
  return decoded(bytes, "zcdp_filter", 3, [](const cbor::Value& state) {
    ZcdpFilter filter(state.at("budget").as_float());
    filter.spent_ = SumRoundedUp::from_cbor(state.at("spent"));
    return filter;
  });
}

Bytes ZcdpOdometer::save() const {
  return cbor::encode(cbor::map({{"type", "zcdp_odometer"},
                                 {"first_budget", first_budget_},
                                 {"delta", delta_},
                                 {"spent", spent_.to_cbor()}}));
}

ZcdpOdometer ZcdpOdometer::restore(ByteView bytes) {
  return decoded(bytes, "zcdp_odometer", 4, [](const cbor::Value& state) {
    ZcdpOdometer odometer(state.at("first_budget").as_float(), state.at("delta").as_float());
    odometer.spent_ = SumRoundedUp::from_cbor(state.at("spent"));
    return odometer;
  });
}

}  // namespace discreet::accounting
