#pragma once

#include <filesystem>
#include <string>

#include "cli/options/command.h"
#include "discreet/ledger/ledger.h"
#include "discreet/unlearning/service/service.h"

namespace discreet::cli {

// The subcommands of `discreet unlearn`, one file each.
void add_unlearn_init(Command& command);
void add_unlearn_insert(Command& command);
void add_unlearn_delete(Command& command);
void add_unlearn_predict(Command& command);
void add_unlearn_status(Command& command);
void add_unlearn_publish(Command& command);
void add_unlearn_verify(Command& command);
void add_unlearn_retrain(Command& command);
void add_unlearn_experiment(Command& command);

// A store: the folder with the model, its ledger and the ledger's key, or settings.json, which says
// where these are.
struct UnlearnStore {
  std::string folder, key, passphrase_file;

  void add_argument(Command& command);
  void add_key_options(Command& command);

  std::filesystem::path model() const { return std::filesystem::path(folder) / "model.db"; }
  ledger::Ledger open_ledger() const;
  // Compared with the ledger on every open.
  unlearning::Service open_service() const;
};

}  // namespace discreet::cli
