#include "discreet/mechanism/step/operators.h"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/print.h"

namespace discreet::cli {
namespace {

void print_json() {
  auto rows = nlohmann::json::array();
  for (const mechanism::Operator& op : mechanism::operators())
    rows.push_back({{"name", op.name},
                    {"category", op.category},
                    {"signature", op.signature},
                    {"purity", op.purity},
                    {"determinism", op.determinism},
                    {"definition", op.definition},
                    {"module", op.module},
                    {"function", op.function}});
  print("{}\n", nlohmann::json{{"operators", rows}}.dump());
}

void print_table() {
  for (const mechanism::Operator& op : mechanism::operators())
    print("{}\n  {}\n  {}\n  {}; {}; {}\n  {} in {}\n", op.name, op.definition, op.signature,
          op.category, op.purity, op.determinism, op.function, op.module);
}

}  // namespace

void add_operators(Command& command) {
  auto json = std::make_shared<bool>(false);
  command.json(*json);
  command.action([json] { *json ? print_json() : print_table(); });
}

}  // namespace discreet::cli
