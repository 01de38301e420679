#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/numbers.h"
#include "cli/print.h"
#include "cli/unlearn/rows.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/text/rounded_text.h"
#include "discreet/unlearning/service/verification.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;

struct Options {
  UnlearnStore store;
  std::string forgotten, test, runs = "2000";
  RowNames names;
  bool json = false;
};

json scores_json(const std::optional<Scores>& scores) {
  if (!scores) return nullptr;
  return {
      {"measure", scores->measure}, {"served", scores->served}, {"retrained", scores->retrained}};
}

ExitStatus verify_store(const Options& o) {
  VerificationOptions options;
  const Service service = o.store.open_service();
  if (!o.forgotten.empty()) options.forgotten = read_rows(service, o.forgotten, o.names);
  if (!o.test.empty()) options.test = read_rows(service, o.test, o.names);
  options.attack_runs = parse_count("--runs", o.runs);
  const Verification v = verify(service, options);
  const json epsilon = v.epsilon_certified ? json(*v.epsilon_certified) : json();
  if (o.json) {
    print("{}\n", json{{"holds", v.holds},
                       {"distance", v.distance},
                       {"bound", v.bound ? json(*v.bound) : json()},
                       {"ratio", v.bound ? json(v.distance / *v.bound) : json()},
                       {"same_state", v.same_state ? json(*v.same_state) : json()},
                       {"disagreement", v.disagreement},
                       {"retained", scores_json(v.retained)},
                       {"forgotten", scores_json(v.forgotten)},
                       {"test", scores_json(v.test)},
                       {"epsilon_lower_bound", v.epsilon_lower_bound},
                       {"epsilon_certified", epsilon},
                       {"control_lower_bound", v.control_lower_bound},
                       {"confidence", options.confidence},
                       {"notes", v.notes}}
                      .dump());
  } else {
    print("{}\n", v.holds ? "HOLDS" : "BROKEN");
    if (v.same_state)
      print("  state          {} that of the live records\n", *v.same_state ? "is" : "IS NOT");
    if (v.bound)
      print("  distance       {:.3g} of {} certified (ratio {:.3g})\n", v.distance,
            brief_up(*v.bound), v.distance / *v.bound);
    print("  disagreement   {:.4f} of predictions, against retraining\n", v.disagreement);
    for (const auto& [name, s] :
         {std::pair{"retained", &v.retained}, {"forgotten", &v.forgotten}, {"test", &v.test}})
      if (*s)
        print("  {:<14} {} {:.4f}, retrained {:.4f}\n", name, (*s)->measure, (*s)->served,
              (*s)->retrained);
    print("  attack         proves epsilon >= {} ({}% confidence); certified {}\n",
          round_down(v.epsilon_lower_bound, 3), 100 * options.confidence, epsilon.dump());
    print("  control        noise skipped, record kept: proves epsilon >= {}\n",
          round_down(v.control_lower_bound, 3));
    for (const std::string& note : v.notes) print("  note           {}\n", note);
    print("  these numbers depend on the records: confidential\n");
  }
  return v.holds ? kDone : kCheckSaysNo;
}

}  // namespace

void add_unlearn_verify(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.option("--forgotten", "FILE", o->forgotten, "Records that were deleted").reads_file();
  command.option("--test", "FILE", o->test, "Records the model never saw").reads_file();
  command.option("--runs", "N", o->runs, "Runs of the attack, of each kind");
  o->names.add_options(command);
  command.json(o->json);
  command.action([o] { return verify_store(*o); });
}

}  // namespace discreet::cli
