#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/deletion_receipt.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "cli/unlearn/rows.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "unlearn", sentence);
}

struct Options {
  UnlearnStore store;
  std::vector<std::string> subjects;
  std::string subjects_file, request, withdrawal, receipts;
  bool json = false;
};

Digest digest_of(const std::string& hex) {
  const Bytes bytes = from_hex(hex);
  Digest digest;
  if (bytes.size() != digest.size()) refuse("a descriptor's hash is 64 hexadecimal digits");
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

void erase(const Options& o) {
  std::vector<std::string> subjects = o.subjects;
  if (!o.subjects_file.empty()) {
    const auto more = read_subjects(o.subjects_file);
    subjects.insert(subjects.end(), more.begin(), more.end());
  }
  if (subjects.empty()) refuse("say whose records: --subject NAME, or --subjects FILE");
  std::optional<Digest> withdrawal;
  if (!o.withdrawal.empty()) withdrawal = digest_of(o.withdrawal);
  const std::string request =
      o.request.empty() ? "delete-" + to_hex(random::Key::from_system().secret_bytes().first(16))
                        : o.request;
  Service service = o.store.open_service();
  auto ledger = o.store.open_ledger();
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const std::uint64_t generation = service.status().generation;
  const auto receipts =
      service.erase(request, subjects, ledger, static_cast<std::uint64_t>(now), withdrawal);
  std::vector<Bytes> leaves;
  for (const auto& receipt : receipts) leaves.push_back(ledger::encode(receipt.entry));
  const auto placed = ledger.receipts(leaves);
  json list = json::array();
  std::string lines;
  for (std::size_t i = 0; i < receipts.size(); ++i) {
    list.push_back(deletion_receipt(receipts[i], subjects[i], placed[i], ledger));
    lines += list.back().dump() + "\n";
  }
  if (!o.receipts.empty()) append_lines(o.receipts, lines, Access::kOwner);
  const ServiceStatus status = service.status();
  const bool retrained = status.generation != generation;
  if (o.json) {
    print("{}\n", json{{"request", request},
                       {"deleted", receipts.size()},
                       {"retrained", retrained},
                       {"live", status.live},
                       {"published", status.published},
                       {"receipts", list}}
                      .dump());
    return;
  }
  for (std::size_t i = 0; i < receipts.size(); ++i)
    print("{}: {} deleted, {}, entry {} of {}\n", subjects[i],
          counted(receipts[i].records.size(), "record"), list[i]["guarantee"].get<std::string>(),
          placed[i].position, ledger.state().header().origin);
  if (retrained) print("the budget did not reach: the model was retrained without them\n");
  if (!status.published)
    print("nothing is served now; next: discreet unlearn publish {}\n", o.store.folder);
}

}  // namespace

void add_unlearn_delete(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.option("--subject", "NAME", o->subjects, "Delete all records of this subject");
  command
      .option("--subjects", "FILE", o->subjects_file,
              "Delete all records of these subjects as one batch; one subject per line")
      .reads_file();
  command.option("--request", "NAME", o->request,
                 "Name of this request, which is carried out once");
  command.option("--withdrawal", "HASH", o->withdrawal,
                 "Hash of the descriptor whose recorded withdrawal asked for the deletion");
  command.option("--receipts", "FILE", o->receipts, "Append the receipts to this file")
      .writes_file();
  o->store.add_key_options(command);
  command.json(o->json);
  command.action([o] { erase(*o); });
}

}  // namespace discreet::cli
