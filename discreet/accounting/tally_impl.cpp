#include "discreet/accounting/tally_impl.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <string>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::accounting {

void refuse(std::string_view accountant, const Event& event) {
  invalid_config(accountant, "{} has no bound in this accountant; choose another accountant",
                 describe(event));
}

Adjacency TallyAccountant::adjacency() const noexcept {
  return events_.empty() ? Adjacency::kAddRemove : events_.begin()->first.adjacency();
}

std::vector<RepeatedEvent> TallyAccountant::composed() const {
  std::vector<RepeatedEvent> out;
  out.reserve(events_.size());
  for (const auto& [event, count] : events_) out.push_back({event, count});
  return out;
}

void TallyAccountant::compose(const Event& event, std::uint64_t count) {
  if (count == 0) {
    invalid_config(std::string(name()), "the count is 0; it must be at least 1");
  }
  check(event);
  if (!events_.empty() && adjacency() != event.adjacency()) {
    invalid_config(std::string(name()),
                   "{} follows events under {}; all events must have the same adjacency",
                   describe(event), to_string(adjacency()));
  }
  const auto found = events_.find(event);
  const std::uint64_t before = found == events_.end() ? 0 : found->second;
  if (count > std::numeric_limits<std::uint64_t>::max() - before) {
    fail(ErrorCode::kAccountantOverflow, std::string(name()), "the count of {} exceeds 64 bits",
         describe(event));
  }
  events_[event] = before + count;
}

EpsilonBound TallyAccountant::epsilon(double delta) const {
  if (!(delta > 0 && delta < 1)) {
    invalid_config(std::string(name()), "delta is {}; it must be in (0, 1)", delta);
  }
  if (events_.empty()) return {{0, 0}, adjacency(), std::nullopt};
  return evaluate_epsilon(delta);
}

Interval TallyAccountant::delta(double epsilon) const {
  if (!(epsilon >= 0 && std::isfinite(epsilon))) {
    invalid_config(std::string(name()), "epsilon is {}; it must be finite and not negative",
                   epsilon);
  }
  if (events_.empty()) return {0, 0};
  return evaluate_delta(epsilon);
}

Bytes TallyAccountant::save() const {
  std::vector<cbor::Value> items;
  for (const auto& [event, count] : events_) items.push_back(cbor::array({encode(event), count}));
  return cbor::encode(cbor::map({{"accountant", name()},
                                 {"log_space_accounting", options_.log_space_accounting},
                                 {"events", cbor::array(std::move(items))}}));
}

void TallyAccountant::restore(ByteView bytes) {
  EventCounts events;
  AccountantOptions options;
  try {
    const cbor::Value state = cbor::decode(bytes);
    if (state.at("accountant").as_text() != name() || state.as_map().size() != 3) {
      malformed(std::string(name()), "the state belongs to another accountant");
    }
    options.log_space_accounting = state.at("log_space_accounting").as_bool();
    for (const auto& item : state.at("events").as_array()) {
      const auto& fields = item.as_array();
      if (fields.size() != 2 || fields[1].as_unsigned() == 0) {
        malformed(std::string(name()), "an event has the wrong shape");
      }
      Event event = decode_event(fields[0].as_bytes());
      check(event);
      if (!events.empty() && !(events.rbegin()->first < event &&
                               events.rbegin()->first.adjacency() == event.adjacency())) {
        malformed(std::string(name()), "the events are not in order");
      }
      events.emplace_hint(events.end(), std::move(event), fields[1].as_unsigned());
    }
  } catch (const Error& error) {
    malformed(std::string(name()),
              "the saved state cannot be restored ({}); pass the bytes that save returned",
              error.sentence());
  }
  events_ = std::move(events);
  options_ = options;
}

}  // namespace discreet::accounting
