#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/deletion_receipt.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "cli/unlearn/rows.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/cbor.h"
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

// What must fit onto the disk before anything is deleted: more than a receipt of few records has,
// for so many of them.
constexpr std::size_t kReceiptBytes = 4096, kMostReserved = 4096;

std::vector<std::string> subjects_of(const Options& o) {
  std::vector<std::string> subjects = o.subjects;
  if (!o.subjects_file.empty()) {
    const auto more = read_subjects(o.subjects_file);
    subjects.insert(subjects.end(), more.begin(), more.end());
  }
  if (subjects.empty()) refuse("say whose records: --subject NAME, or --subjects FILE");
  return subjects;
}

// The name of a request without one: a user who repeats the command after a failure asks for the
// same deletion, and gets its receipts. It counts the deletions of these subjects, because someone
// who was inserted again is deleted again. subjects: ascending.
std::string name_of(const Service& service, const std::vector<std::string>& subjects, bool any_live,
                    const std::optional<Digest>& withdrawal) {
  const Digest digest = sha256(
      cbor::encode(cbor::array({"unlearn/delete/1", cbor::array({subjects.begin(), subjects.end()}),
                                withdrawal ? cbor::Value(*withdrawal) : cbor::Value()})));
  const std::string first = "delete-" + to_hex(ByteView(digest).first(16));
  std::string last, next = first;
  for (std::uint64_t i = 2; service.knows(next); ++i) {
    last = next;
    next = fmt::format("{}-{}", first, i);
  }
  return any_live || last.empty() ? next : last;
}

// Whatever fails here may follow the deletion: the error says how to get the receipts.
template <class F>
auto repeatable(const std::string& request, F&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidInput) throw;
    fail(error.code(), error.op(), "{}; repeat the same command with --request {}",
         error.sentence(), request);
  }
}

void erase(const Options& o) {
  const std::vector<std::string> given = subjects_of(o);
  std::vector<std::string> subjects = given;
  std::sort(subjects.begin(), subjects.end());
  std::optional<Digest> withdrawal;
  if (!o.withdrawal.empty()) withdrawal = digest_of(o.withdrawal);
  Service service = o.store.open_service();
  auto ledger = o.store.open_ledger();
  std::set<std::string> live;
  for (const Row& row : service.rows()) live.insert(row.subject);
  const auto is_live = [&](const std::string& subject) { return live.contains(subject); };
  const std::string request =
      o.request.empty()
          ? name_of(service, subjects, std::any_of(subjects.begin(), subjects.end(), is_live),
                    withdrawal)
          : o.request;
  const bool repeated = service.knows(request);
  std::optional<LinesFile> file;
  // Otherwise the deletion is refused below.
  if (repeated || std::all_of(subjects.begin(), subjects.end(), is_live)) {
    if (o.request.empty() && !o.json) print("request {}\n", request);
    flush_output();
    if (!o.receipts.empty())
      file.emplace(o.receipts, Access::kOwner,
                   kReceiptBytes * std::min(subjects.size(), kMostReserved));
  }
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto ask = [&] {
    return service.erase(request, subjects, ledger, static_cast<std::uint64_t>(now), withdrawal);
  };
  const std::uint64_t generation = service.status().generation;
  const auto receipts = repeatable(request, [&] {
    try {
      return ask();
    } catch (const Error& error) {
      // Earlier versions, and Python, keep the order in which the subjects are given.
      if (!repeated || error.code() != ErrorCode::kInvalidInput || subjects == given) throw;
      subjects = given;
      return ask();
    }
  });
  repeatable(request, [&] {
    std::vector<Bytes> leaves;
    leaves.reserve(receipts.size());
    for (const auto& receipt : receipts) leaves.push_back(ledger::encode(receipt.entry));
    const auto placed = ledger.receipts(leaves);
    json list = json::array();
    std::string lines;
    for (std::size_t i = 0; i < receipts.size(); ++i) {
      list.push_back(deletion_receipt(receipts[i], subjects[i], placed[i], ledger));
      lines += list.back().dump() + "\n";
    }
    if (file) file->append(lines);
    const ServiceStatus status = service.status();
    const bool retrained = status.generation != generation;
    if (o.json) {
      print("{}\n", json{{"request", request},
                         {"repeated", repeated},
                         {"deleted", receipts.size()},
                         {"retrained", retrained},
                         {"live", status.live},
                         {"published", status.published},
                         {"receipts", list}}
                        .dump());
      return flush_output();
    }
    for (std::size_t i = 0; i < receipts.size(); ++i)
      print("{}: {} deleted, {}, entry {} of {}\n", subjects[i],
            counted(receipts[i].records.size(), "record"), list[i]["guarantee"].get<std::string>(),
            placed[i].position, ledger.state().header().origin);
    if (repeated) print("this request was carried out before: these are its receipts\n");
    if (retrained) print("the budget did not reach: the model was retrained without them\n");
    if (!status.published)
      print("nothing is served now; next: discreet unlearn publish {}\n", o.store.folder);
    flush_output();
  });
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
  command.option(
      "--request", "NAME", o->request,
      "Name of this request, which is carried out once; made of the subjects if not given");
  command.option("--withdrawal", "HASH", o->withdrawal,
                 "Hash of the descriptor whose recorded withdrawal asked for the deletion");
  command.option("--receipts", "FILE", o->receipts, "Append the receipts to this file")
      .writes_file();
  o->store.add_key_options(command);
  command.json(o->json);
  command.action([o] { erase(*o); });
}

}  // namespace discreet::cli
