#include <chrono>
#include <memory>

#include "cli/contributions.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/ledger/ledger.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, key, passphrase_file;
  bool json = false;
};

void run_summarise(const Options& options) {
  Ledger ledger = Ledger::open(options.file, read_key(options.key, options.passphrase_file));
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const std::uint64_t before = ledger.state().counts().summarised;
  ledger.summarise(static_cast<std::uint64_t>(now));
  const std::uint64_t entries = ledger.state().counts().summarised - before;
  const std::uint64_t days = ledger.state().header().retention / 86'400;
  if (options.json)
    print("{}\n", json{{"summarised_entries", entries},
                       {"retention_seconds", ledger.state().header().retention},
                       {"note", ledger.note()}}
                      .dump());
  else if (entries == 0)
    print("nothing to summarise: every contribution is valid or ended within the last {}\n",
          counted(days, "day"));
  else
    print("{} summarised: their content is gone, their hashes and the totals of each class stay\n",
          entries == 1 ? "1 entry" : fmt::format("{} entries", entries));
}

}  // namespace

void add_ledger_summarise(Command& command) {
  auto options = std::make_shared<Options>();
  add_ledger_argument(command, options->file);
  command.option("--key", "FILE", options->key, "Private key of the ledger")
      .required()
      .reads_file();
  add_passphrase_option(command, options->passphrase_file);
  command.json(options->json);
  command.action([options] { run_summarise(*options); });
}

}  // namespace discreet::cli
