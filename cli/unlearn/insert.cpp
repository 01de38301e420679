#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/print.h"
#include "cli/unlearn/rows.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;

struct Options {
  UnlearnStore store;
  std::string data, request;
  RowNames names;
  bool reinsert = false, json = false;
};

void insert(const Options& o) {
  const auto rows = read_rows(o.data, o.names);
  if (rows.empty())
    throw Error(ErrorCode::kInvalidInput, "unlearn",
                fmt::format("'{}' has no records; give at least one", o.data));
  const std::string request =
      o.request.empty() ? "file-" + to_hex(sha256(bytes_of(read_input(o.data)))) : o.request;
  Service service = o.store.open_service();
  const std::uint64_t fresh = service.insert(
      request, rows, o.reinsert ? Service::Reinsert::kAllow : Service::Reinsert::kRefuse);
  const ServiceStatus status = service.status();
  if (o.json)
    print("{}\n", json{{"request", request},
                       {"inserted", fresh},
                       {"already_there", rows.size() - fresh},
                       {"live", status.live}}
                      .dump());
  else
    print("{} records inserted, {} already known, {} live\n", fresh, rows.size() - fresh,
          status.live);
}

}  // namespace

void add_unlearn_insert(Command& command) {
  auto o = std::make_shared<Options>();
  o->store.add_argument(command);
  command.argument("DATA", o->data, "Records: CSV, or JSON lines {\"subject\", \"x\", \"y\"}")
      .required()
      .reads_file();
  o->names.add_options(command);
  command.option("--request", "NAME", o->request,
                 "Name of this request, which is carried out once; the file's hash if not given");
  command.flag("--reinsert", o->reinsert, "Allow deleted subjects, who asked to take part again");
  command.json(o->json);
  command.action([o] { insert(*o); });
}

}  // namespace discreet::cli
