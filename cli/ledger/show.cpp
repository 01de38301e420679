#include <fmt/chrono.h>

#include <memory>

#include "cli/ledger/ledger.h"
#include "cli/print.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, from = "0", limit = "20";
  bool json = false;
};

// A field in the units and words of people: scaled integers as numbers, times as dates.
std::string for_people(std::string& name, const json& value) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"_nano", kNano}, {"_micro", kMicro}, {"_pico", kPico}, {"_atto", kAtto}};
  for (const auto& [suffix, unit] : kUnits)
    if (name.ends_with(suffix) && value.is_number()) {
      name.resize(name.size() - suffix.size());
      return fmt::format("{}", value.get<double>() / unit);
    }
  const bool is_time =
      name == "as_of" || name == "not_after" || name == "time" || name == "horizon";
  if (is_time && value.is_number() && value.get<std::uint64_t>() < 253'402'300'800)
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(value.get<std::time_t>()));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void run_show(const Options& options) {
  Store store(options.file, Store::Mode::kRead);
  const std::uint64_t from = parse_position("--from", options.from);
  std::uint64_t left = parse_position("--limit", options.limit), next = from;
  Store::Leaves leaves(store, from);
  Store::Leaf leaf;
  for (; left > 0 && leaves.next(leaf); --left) {
    next = leaf.position + 1;
    const json row = leaf.summarised ? json{{"entry", leaf.position},
                                            {"type", "summarised"},
                                            {"leaf_hash", to_hex(leaf.hash)}}
                                     : described(store, leaf.position, decode_entry(leaf.content));
    if (options.json) {
      print("{}\n", row.dump());
      continue;
    }
    print("{:>8}  {}", leaf.position, row["type"].get<std::string>());
    for (const auto& [key, value] : row.items()) {
      const bool says_nothing =
          (value.is_string() && value.get_ref<const std::string&>().empty()) ||
          (value == 0 && key != "contribution" && key != "epoch" && key != "terms");
      if (says_nothing || key == "type" || key == "entry" || key == "under" || key == "signature" ||
          key == "policy")
        continue;
      std::string name = key;
      const std::string text = for_people(name, value);
      print("  {}={}", name, text);
    }
    print("\n");
  }
  if (options.json) return;
  if (next == from && left > 0)
    print("no entries from {}\n", from);
  else if (left == 0 && leaves.next(leaf))
    print("there are more; continue with --from {}\n", next);
}

}  // namespace

void add_ledger_show(Command& command) {
  auto options = std::make_shared<Options>();
  add_ledger_argument(command, options->file);
  command.option("--from", "ENTRY", options->from, "First entry to show");
  command.option("--limit", "N", options->limit, "Maximum number of entries to show");
  command.json(options->json);
  command.action([options] { run_show(*options); });
}

}  // namespace discreet::cli
