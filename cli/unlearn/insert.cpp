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

// The engine moves what lies outside inside, which may be most of a file with other units.
void warn_of_moved(const Service& service, const std::vector<Row>& rows) {
  const Service::Moved moved = service.moved(rows);
  if (moved.records > 0)
    print(stderr,
          "warning: {} of {} records exceed the norm bound and were scaled down to it, as "
          "predictions will be; to avoid this, create the model with --config, which declares "
          "bounds, or with a larger --norm (confidential)\n",
          moved.records, rows.size());
  if (moved.labels > 0)
    print(stderr,
          "warning: {} of {} labels exceed the label bound and were clipped to it; to avoid this, "
          "create the model with {} (confidential)\n",
          moved.labels, rows.size(),
          service.form().columns ? "wider data.label_bounds" : "a larger --label-bound");
}

void insert(const Options& o) {
  Service service = o.store.open_service();
  const auto rows = read_rows(service, o.data, o.names);
  if (rows.empty())
    throw Error(ErrorCode::kInvalidInput, "unlearn",
                fmt::format("'{}' has no records; give at least one", o.data));
  const std::string request =
      o.request.empty() ? "file-" + to_hex(sha256(bytes_of(read_input(o.data)))) : o.request;
  const std::uint64_t fresh = service.insert(
      request, rows, o.reinsert ? Service::Reinsert::kAllow : Service::Reinsert::kRefuse);
  if (fresh > 0) warn_of_moved(service, rows);
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
