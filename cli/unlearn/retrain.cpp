#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/print.h"
#include "cli/unlearn/unlearn.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;

struct Options {
  UnlearnStore store;
  bool json = false;
};

void retrain(const Options& o) {
  Service service = o.store.open_service();
  service.retrain();
  const ServiceStatus s = service.status();
  if (o.json)
    print("{}\n", json{{"generation", s.generation}, {"live", s.live}}.dump());
  else
    print("retrained from its beginning over {} records: generation {}\n", s.live, s.generation);
}

}  // namespace

void add_unlearn_retrain(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.json(o->json);
  command.action([o] { retrain(*o); });
}

}  // namespace discreet::cli
