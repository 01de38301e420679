#include "cli/unlearn/unlearn.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/contributions.h"
#include "cli/input.h"
#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"

namespace discreet::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Where the ledger is, and its key.
struct Places {
  std::string ledger, key;
};

Places places(const UnlearnStore& store) {
  const fs::path folder = store.folder;
  Places found{(folder / "ledger.db").string(), (folder / "ledger.key").string()};
  if (fs::exists(folder / "settings.json")) {
    try {
      const json settings = read_json(read_input((folder / "settings.json").string()));
      found = {settings.at("ledger").get<std::string>(), settings.at("key").get<std::string>()};
    } catch (const json::exception&) {
      throw Error(ErrorCode::kInvalidInput, "unlearn",
                  fmt::format("{}/settings.json is not what 'init' wrote", store.folder));
    }
  }
  if (!store.key.empty()) found.key = store.key;
  return found;
}

}  // namespace

void UnlearnStore::add_argument(Command& command) {
  Option& argument = command.argument("STORE", folder, "Folder of the model").required();
  command.name() == "init" ? argument.writes_folder() : argument.reads_folder();
}

void UnlearnStore::add_key_options(Command& command) {
  command
      .option("--key", "FILE", key, "Private key of the ledger; the one in the store if not given")
      .reads_file();
  add_passphrase_option(command, passphrase_file);
}

ledger::Ledger UnlearnStore::open_ledger() const {
  const Places at = places(*this);
  return ledger::Ledger::open(at.ledger, read_key(at.key, passphrase_file));
}

unlearning::Service UnlearnStore::open_service() const {
  const Places at = places(*this);
  // A journal there is a killed writer's: the key's holder rolls it back first.
  if (fs::exists(at.ledger + "-journal")) open_ledger();
  return {model(), at.ledger};
}

void add_unlearn(Command& command) {
  add_unlearn_init(command.subcommand(
      "init", "Create an empty model in a new folder.",
      "discreet unlearn init churn --engine exact --dimension 54\n"
      "  discreet unlearn init churn --engine erm --config train.yaml\n"
      "  discreet unlearn init churn --engine erm --dimension 54 --epsilon 1 --guarantee "
      "set-level\n"
      "  discreet unlearn init churn --engine stream --dimension 54 --ledger ledger.db \\\n"
      "    --key ledger.key"));
  add_unlearn_insert(
      command.subcommand("insert", "Insert records; inserting the same file again changes nothing.",
                         "discreet unlearn insert churn records.csv --subject-column customer\n"
                         "  discreet unlearn insert churn day-17.jsonl --request day-17"));
  add_unlearn_delete(command.subcommand(
      "delete", "Delete all records of subjects, with a signed receipt for each.",
      "discreet unlearn delete churn --subject alice --receipts receipts.jsonl\n"
      "  discreet unlearn delete churn --subjects leavers.txt --request leavers-may\n"
      "  discreet unlearn delete churn --subject alice --withdrawal HASH"));
  add_unlearn_predict(
      command.subcommand("predict", "Predict with the last published model, one line per record.",
                         "discreet unlearn predict churn new.csv"));
  add_unlearn_status(command.subcommand(
      "status", "Show what the model holds, what it promises and how much budget is left.",
      "discreet unlearn status churn --json"));
  add_unlearn_publish(command.subcommand("publish",
                                         "Publish the current model, which predictions then use.",
                                         "discreet unlearn publish churn --json > model.json"));
  add_unlearn_verify(command.subcommand(
      "verify", "Retrain and attack copies of the model, to test what is certified.",
      "discreet unlearn verify churn --test test.csv --forgotten leavers.csv"));
  add_unlearn_retrain(command.subcommand("retrain",
                                         "Retrain on the live records, as a new generation.",
                                         "discreet unlearn retrain churn"));
  add_unlearn_experiment(command.subcommand(
      "experiment", "Compare literal and certified deletion capacity on a stream of records.",
      "discreet unlearn experiment --events 20000 --drift-at 12000 --out capacity.html \\\n"
      "    --log capacity.jsonl\n"
      "  discreet unlearn experiment records.csv --gamma-priv 5"));
}

}  // namespace discreet::cli
