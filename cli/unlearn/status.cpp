#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/print.h"
#include "cli/unlearn/experiment.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/text/rounded_text.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;

struct Options {
  UnlearnStore store;
  bool json = false;
};

void status(const Options& o) {
  const ServiceStatus s = o.store.open_service().status();
  if (o.json) {
    json metrics = json::object();
    for (const auto& [name, value] : s.metrics) metrics[name] = metric_json(value);
    print("{}\n", json{{"model", s.model},
                       {"engine", s.engine},
                       {"guarantee", s.guarantee},
                       {"live", s.live},
                       {"deletions", s.deletions},
                       {"receipts_to_confirm", s.unconfirmed},
                       {"generation", s.generation},
                       {"published", s.published},
                       {"deletes_left", s.deletes_left ? json(*s.deletes_left) : json()},
                       {"releases_left", s.releases_left ? json(*s.releases_left) : json()},
                       {"epsilon_total", s.eps_total},
                       {"delta_total", s.delta_total},
                       {"epsilon_spent", s.eps_spent},
                       {"warnings", s.warnings},
                       {"state", to_hex(s.state)},
                       {"metrics", metrics}}
                      .dump());
    return;
  }
  print("model       {} ({}), {}\n", s.model, s.engine, s.guarantee);
  print("records     {} live, {} deletions, generation {}\n", s.live, s.deletions, s.generation);
  if (s.eps_total > 0)
    print("budget      epsilon {} of {} at delta {}\n", round_up(s.eps_spent), s.eps_total,
          s.delta_total);
  if (s.deletes_left) print("capacity    {} deletes, then a retrain\n", *s.deletes_left);
  if (s.releases_left) print("capacity    {} releases, then a retrain\n", *s.releases_left);
  if (const auto phase = s.metrics.find("phase"); phase != s.metrics.end())
    print("phase       {}\n", std::get<std::string>(phase->second));
  print("served      {}\n", s.published ? "the last publication" : "nothing: publish first");
  if (s.unconfirmed > 0)
    print("receipts    {} may be missing in the ledger; the next delete writes them\n",
          s.unconfirmed);
  print("state       {} (confidential)\n", to_hex(s.state));
  for (const std::string& warning : s.warnings) print("warning: {}\n", warning);
}

}  // namespace

void add_unlearn_status(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.json(o->json);
  command.action([o] { status(*o); });
}

}  // namespace discreet::cli
