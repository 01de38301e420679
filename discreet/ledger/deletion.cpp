#include "discreet/ledger/deletion_impl.h"

namespace discreet::ledger {

using nlohmann::json;

json plain_members(const Deletion& e) {
  return {{"model", e.model},
          {"deletion", e.number},
          {"time", e.time},
          {"engine", e.engine},
          {"guarantee", std::string(describe(e).at("promise").as_text())},
          {"epsilon", static_cast<double>(e.epsilon) / kMicro},
          {"delta", static_cast<double>(e.delta) / kAtto},
          {"residual_bound", static_cast<double>(e.residual) / kAtto},
          {"generation", e.generation},
          {"withdrawal", e.withdrawal ? json(*e.withdrawal) : json()},
          {"commitment", to_hex(e.commitment)}};
}

}  // namespace discreet::ledger
