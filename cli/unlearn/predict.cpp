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
  const Service service = o.store.open_service();
  const auto rows = read_rows(service, o.data, o.names, false);
  const RecordForm& form = service.form();
  json answers = json::array(), scores = json::array();
  bool ready = true;
  for (const Row& row : rows) {
    const Prediction p = service.predict(row.x);
    const std::string name = class_of(form, p.value);
    answers.push_back(name.empty() ? json(number_of(form, p.value, service.label_bound()))
                                   : json(name));
    scores.push_back(p.value);
    ready = p.ready;
  }
  if (o.json) {
    json out = {{"predictions", answers}, {"ready_to_predict", ready}};
    if (form.columns) out["scores"] = scores;
    print("{}\n", out.dump());
    return;
  }
  for (const auto& value : answers)
    print("{}\n", value.is_string() ? value.get<std::string>() : value.dump());
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
