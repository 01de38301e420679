#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/print.h"
#include "cli/unlearn/rows.h"
#include "cli/unlearn/unlearn.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;

struct Options {
  UnlearnStore store;
  std::string data;
  RowNames names;
  bool json = false;
};

void predict(const Options& o) {
  const auto rows = read_rows(o.data, o.names, false);
  const Service service = o.store.open_service();
  json values = json::array();
  bool ready = true;
  for (const Row& row : rows) {
    const Prediction p = service.predict(row.x);
    values.push_back(p.value);
    ready = p.ready;
  }
  if (o.json) {
    print("{}\n", json{{"predictions", values}, {"ready_to_predict", ready}}.dump());
    return;
  }
  for (const auto& value : values) print("{}\n", value.dump());
  if (!ready)
    print(stderr, "the model has seen fewer records than its regret target asks for (N*)\n");
}

}  // namespace

void add_unlearn_predict(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.argument("DATA", o->data, "Records; subjects and labels are optional")
      .required()
      .reads_file();
  o->names.add_options(command);
  command.json(o->json);
  command.action([o] { predict(*o); });
}

}  // namespace discreet::cli
