#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/commands.h"
#include "cli/contributions.h"
#include "cli/input.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/data/csv_rows.h"

namespace discreet::cli {
namespace {

using namespace admission;
using Row = std::map<std::string, std::string>;

// What a row may hold, and the options of the same names.
struct Field {
  const char* name;
  const char* value;  // none: no such option
  const char* help;
};
constexpr Field kFields[] = {
    {"contributor", "NAME", "Who contributes"},
    {"class", "NAME", "Admissibility class, as the policy names it"},
    {"payload", "FILE", "File whose SHA-256 is the content anchor"},
    {"anchor", "HASH", "Content anchor, instead of --payload: 64 hexadecimal digits"},
    {"clip_norm", "C", "Largest norm of a gradient of this contribution"},
    {"noise_multiplier", "Z", "Noise promised, in units of the clip norm"},
    {"occurrences", "K", "Largest number of uses over all runs"},
    {"not_before", "TIME", "Start of validity, such as 2026-11-16 or 2026-11-16T12:00:00Z"},
    {"not_after", "TIME", "End of validity"},
    {"days", "N", "End of validity, N days after its start, which is today if not given"},
    {"adapter", "NAME", "Only adapter that the contribution may train"},
    {"promise", nullptr, nullptr},
    {"corpus", "NAME", "Corpus it is for; the policy's if one is given"}};

std::vector<std::string> field_names() {
  std::vector<std::string> out;
  for (const Field& field : kFields) out.emplace_back(field.name);
  return out;
}

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

struct Options {
  std::string key, passphrase_file, policy, batch, data, contributor_column, class_column,
      separator = ",", header, out;
  Row row;
  bool append = false, json = false;
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "attest", sentence);
}

// One record of CSV: commas, fields in double quotes, a quote doubled inside them.
std::vector<std::string> split(const std::string& line, const std::string& where) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      out.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      out.emplace_back();
    } else if (c != '\r' || i + 1 < line.size()) {
      out.back() += c;
    }
  }
  if (quoted) refuse(where + ": a quote is not closed");
  return out;
}

void check_field(const std::string& name, const std::string& where) {
  const std::vector<std::string> known = field_names();
  if (std::find(known.begin(), known.end(), name) == known.end())
    refuse(fmt::format("{}: unknown field {}; the fields are {}", where, name,
                       fmt::join(known, ", ")));
}

std::vector<Row> read_batch(const std::string& path) {
  std::istringstream lines(read_input(path));
  std::vector<Row> rows;
  std::vector<std::string> header;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    if (line.find_first_not_of(" \r\t") == std::string::npos) continue;
    Row row;
    if (line.front() == '{') {
      const auto object = [&] {
        try {
          return try_read_json(line, unique_names());
        } catch (const Error& error) {
          refuse(fmt::format("{}: {}; keep one of them", where, error.sentence()));
        }
      }();
      if (!object.is_object()) refuse(where + ": expected a JSON object");
      for (const auto& [name, value] : object.items())
        if (!value.is_null())
          row[name] = value.is_string() ? value.get<std::string>() : value.dump();
    } else if (header.empty()) {
      header = split(line, where);
      for (const std::string& name : header) check_field(name, where);
      continue;
    } else {
      const auto fields = split(line, where);
      if (fields.size() != header.size())
        refuse(fmt::format("{}: {} fields, and the header has {}", where, fields.size(),
                           header.size()));
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (!fields[i].empty()) row[header[i]] = fields[i];
    }
    for (const auto& [name, value] : row) check_field(name, where);
    row["line"] = where;
    rows.push_back(std::move(row));
  }
  if (rows.empty()) refuse(fmt::format("{} has no rows", path));
  return rows;
}

// A row for each line of a training file, whose content anchor is the SHA-256 of the line. The
// other fields are the options'.
std::vector<Row> rows_of_data(const Options& options) {
  if (options.separator.size() != 1) refuse("--separator must be one character");
  data::CsvFormat format{.separator = options.separator[0], .trim = true};
  if (!options.header.empty()) format.header = split(options.header, "--header");
  data::CsvRows csv(options.data, format);
  const auto place = [&](const std::string& column) -> std::optional<std::size_t> {
    if (column.empty()) return std::nullopt;
    return csv.column(column);
  };
  const auto contributor = place(options.contributor_column), kind = place(options.class_column);
  std::vector<Row> rows;
  csv.for_each(data::BadRow::kRefuse, [&](const std::vector<std::string_view>& fields) {
    Row row = options.row;
    if (contributor) row["contributor"] = fields[*contributor];
    if (kind) row["class"] = fields[*kind];
    row["anchor"] = to_hex(sha256(bytes_of(csv.line())));
    row["line"] = fmt::format("{}, record {}", options.data, rows.size() + 1);
    rows.push_back(std::move(row));
  });
  if (rows.empty()) refuse(fmt::format("{} has no records", options.data));
  return rows;
}

// `days` and today, where an instant is missing.
void complete_validity(Row& row, const std::string& where) {
  if (!row.contains("days")) return;
  if (row.contains("not_after")) refuse(where + "give not_after or days, not both");
  constexpr Instant kDay = 86'400;
  constexpr int kMostDays = 36'525;
  const std::string& text = row["days"];
  int days = 0;
  if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), days);
      error != std::errc{} || end != text.data() + text.size() || days < 1 || days > kMostDays)
    refuse(fmt::format("{}days is '{}'; give a whole number from 1 to {}", where, text, kMostDays));
  const Instant now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  row.try_emplace("not_before", instant_text(now / kDay * kDay));
  row["not_after"] =
      instant_text(parse_instant(row["not_before"], where + "not_before") + days * kDay);
}

Descriptor descriptor_of(Row row, const std::optional<Policy>& policy) {
  const std::string where = row.contains("line") ? row["line"] + ": " : "";
  if (policy && row.contains("class")) {
    const auto preset = policy->classes.find(row["class"]);
    if (preset == policy->classes.end())
      refuse(fmt::format("{}the policy has no class {}", where, row["class"]));
    const ClassPolicy& c = preset->second;
    row.try_emplace("clip_norm", c.clip_norm.to_text());
    row.try_emplace("noise_multiplier", c.noise_multiplier.to_text());
    row.try_emplace("occurrences", std::to_string(c.most_occurrences));
    if (c.amplified) row.try_emplace("promise", "amplified");
  }
  if (policy) row.try_emplace("corpus", policy->corpus);
  complete_validity(row, where);
  const auto need = [&](const char* name) -> const std::string& {
    const auto at = row.find(name);
    if (at == row.end()) refuse(fmt::format("{}{} is missing", where, name));
    return at->second;
  };
  Descriptor d;
  d.contributor = need("contributor");
  d.data_class = need("class");
  d.clip_norm = parse_scaled(need("clip_norm"), where + "clip_norm");
  d.noise_multiplier = parse_scaled(need("noise_multiplier"), where + "noise_multiplier");
  const std::string& k = need("occurrences");
  if (const auto [end, error] = std::from_chars(k.data(), k.data() + k.size(), d.occurrences);
      error != std::errc{} || end != k.data() + k.size())
    refuse(fmt::format("{}occurrences is '{}'; give a whole number below 2^32", where, k));
  d.not_before = parse_instant(need("not_before"), where + "not_before");
  d.not_after = parse_instant(need("not_after"), where + "not_after");
  if (row.contains("adapter")) d.adapter = row["adapter"];
  d.corpus = need("corpus");
  if (row.contains("promise")) {
    if (row["promise"] != "amplified" && row["promise"] != "every_pattern")
      refuse(where + "promise must be every_pattern or amplified");
    if (row["promise"] == "amplified") d.promise = Promise::kAmplified;
  }
  if (row.contains("payload") == row.contains("anchor"))
    refuse(where + "give either payload, a file, or anchor, its SHA-256");
  if (row.contains("payload")) {
    d.content_anchor = sha256(bytes_of(read_input(row["payload"])));
  } else {
    const Bytes bytes = from_hex(row["anchor"]);
    if (bytes.size() != d.content_anchor.size())
      refuse(where + "anchor must be 64 hexadecimal digits");
    std::copy(bytes.begin(), bytes.end(), d.content_anchor.begin());
  }
  d.nonce = fresh_nonce();
  return d;
}

// A policy without keys is a draft: nobody is trusted yet.
void warn_if_untrusted(const Policy& policy, const SigningKey& key, const std::string& path) {
  const auto is_ours = [&](const TrustedKey& each) { return each.key == key.public_key(); };
  if (policy.keys.empty() || std::any_of(policy.keys.begin(), policy.keys.end(), is_ours)) return;
  print(stderr,
        "warning: {} does not trust key {}, so 'discreet admit' will refuse what it signs; sign "
        "with a key under 'keys', or add it there, or rotate to it: 'discreet keygen --rotate'\n",
        path, to_hex(key.public_key().id()));
}

std::vector<Row> rows_of(const Options& options) {
  if (!options.data.empty()) return rows_of_data(options);
  if (!options.contributor_column.empty() || !options.class_column.empty())
    refuse("--contributor-column and --class-column name columns of --data, which is missing");
  if (options.batch.empty() == options.row.empty())
    refuse(
        "give --data, a training file, --batch, a file of rows, or --contributor, --class and "
        "so on");
  return options.batch.empty() ? std::vector{options.row} : read_batch(options.batch);
}

void run(const Options& options) {
  const std::vector<Row> rows = rows_of(options);
  std::string out = options.out;
  if (out.empty() && options.row.contains("payload"))
    out = options.row.at("payload") + ".anchor.jsonl";
  if (out.empty()) refuse("give --out, the anchor file");
  if (!options.append && ::access(out.c_str(), F_OK) == 0)
    refuse(fmt::format("'{}' exists; give --append to add to it", out));
  std::optional<Policy> policy;
  if (!options.policy.empty()) policy = read_policy(read_input(options.policy), options.policy);
  const SigningKey key = read_key(options.key, options.passphrase_file);
  std::string lines;
  std::string last;
  for (const Row& row : rows) {
    const Descriptor d = descriptor_of(row, policy);
    const Bytes bytes = encode(d);
    last = to_hex(hash_of(bytes));
    nlohmann::json line = {{"descriptor_hash", last},
                           {"descriptor", to_hex(bytes)},
                           {"attestation", to_hex(attest(key, bytes))},
                           {"anchor", to_hex(d.content_anchor)},
                           {"contributor", d.contributor},
                           {"class", d.data_class}};
    if (row.contains("payload")) line["payload"] = row.at("payload");
    lines += line.dump() + "\n";
  }
  append_lines(out, lines);
  if (policy) warn_if_untrusted(*policy, key, options.policy);
  const std::string id = to_hex(key.public_key().id());
  if (options.json)
    print("{}\n", nlohmann::json{{"attested", rows.size()}, {"out", out}, {"key", id}}.dump());
  else if (rows.size() == 1)
    print("attested {}\n  by key {}\n  into   {}\n", last, id, out);
  else
    print("attested {} contributions\n  by key {}\n  into   {}\n", rows.size(), id, out);
}

}  // namespace

void add_attest(Command& command) {
  auto options = std::make_shared<Options>();
  command.option("--key", "FILE", options->key, "Private key that signs").required().reads_file();
  add_passphrase_option(command, options->passphrase_file);
  command
      .option("--batch", "FILE", options->batch,
              "Attest every row of a file: CSV with a header, or JSON lines. Its columns are "
              "contributor, class, payload or anchor, clip_norm, noise_multiplier, occurrences, "
              "not_before, not_after or days, adapter, promise (every_pattern or amplified) and "
              "corpus; the policy supplies clip_norm, noise_multiplier, occurrences, promise and "
              "corpus")
      .excludes({"--data"})
      .reads_file();
  command
      .option("--data", "FILE", options->data,
              "Attest every record of a CSV file for training, by the SHA-256 of its line; the "
              "options below hold for all of them")
      .excludes({"--payload", "--anchor"})
      .reads_file();
  command
      .option("--contributor-column", "NAME", options->contributor_column,
              "Column of --data that names who contributes")
      .excludes({"--contributor"});
  command
      .option("--class-column", "NAME", options->class_column,
              "Column of --data that names the class")
      .excludes({"--class"});
  command.option("--separator", "C", options->separator, "Separator of the columns of --data");
  command.option("--header", "NAMES", options->header,
                 "Names of the columns of --data, separated by commas, if it has no header line");
  command
      .option("--policy", "FILE", options->policy,
              "Corpus policy, which supplies what is not given for a class")
      .reads_file();
  for (const Field& field : kFields) {
    if (field.value == nullptr) continue;
    Option& option = command.option(
        "--" + dashed(field.name), field.value,
        [options, &field](const std::string& text) { options->row[field.name] = text; },
        field.help);
    if (std::string_view(field.name) == "payload") option.reads_file();
  }
  command.flag(
      "--amplified", [options] { options->row["promise"] = "amplified"; },
      "Consent to a promise that relies on secret sampling");
  command.option("--out", "FILE", options->out, "Anchor file; PAYLOAD.anchor.jsonl if not given")
      .writes_file();
  command.flag("--append", options->append, "Append to the anchor file if it exists");
  command.json(options->json);
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
