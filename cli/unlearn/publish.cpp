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

void publish(const Options& o) {
  Service service = o.store.open_service();
  const Release release = service.publish();
  const ServiceStatus s = service.status();
  if (o.json)
    print("{}\n", json{{"parameters", release.parameters},
                       {"sigma", release.sigma},
                       {"residual_bound", release.residual_bound},
                       {"guarantee", release.guarantee},
                       {"generation", s.generation},
                       {"releases_left", s.releases_left ? json(*s.releases_left) : json()}}
                      .dump());
  else
    print("published: {} parameters, noise {}, {}\n", release.parameters.size(), release.sigma,
          release.guarantee);
}

}  // namespace

void add_unlearn_publish(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.json(o->json);
  command.action([o] { publish(*o); });
}

}  // namespace discreet::cli
