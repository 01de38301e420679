// The text of a statement. What FORMAT.md lists is written here once per direction; that both
// agree, and that nothing else is in a text, is checked by writing again what was read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/release/manifest.h"

namespace discreet::release {
namespace {

using nlohmann::json;

constexpr const char* kStatementType = "https://in-toto.io/Statement/v1";
constexpr const char* kPredicateType = "https://discreet/release/v1";

constexpr const char* kOperator = "release";

// ---------------------------------------------------------------- writing

json written(const Posture& p) {
  return {{"class", p.admissibility_class},
          {"contributions", p.contributions},
          {"withdrawn", p.withdrawn},
          {"epochs", p.epochs},
          {"clip_nano", p.clip},
          {"multiplier_nano", p.multiplier},
          {"uses", p.uses},
          {"promised_epsilon_micro", p.epsilon},
          {"noise_deviation_nano", p.deviation},
          {"spent_epsilon_micro", p.spend}};
}
json written(const Layer& l) { return {{"layer", l.name}, {"classes", l.classes}}; }
json written(const Adapter& a) {
  return {{"adapter", a.name}, {"classes", a.classes}, {"scope", a.scope}};
}
json written(const GenerationClass& g) {
  return {{"name", g.name},
          {"layers", g.layers},
          {"adapters", g.adapters},
          {"purposes", g.purposes},
          {"serves_withdrawn", g.serves_withdrawn}};
}
json written(const ModelFile& f) {
  return {{"name", f.name}, {"digest", {{"sha256", to_hex(f.sha256)}}}};
}
json written(const LedgerView& l) {
  return {{"public_key", to_hex(l.key)},
          {"note", l.note},
          {"accountant", l.accountant},
          {"delta_atto", l.delta},
          {"adjacency", accounting::to_string(l.adjacency)}};
}
json written(const PrivacyStatement& p) {
  return {{"epsilon_upper_micro", p.epsilon},
          {"delta_atto", p.delta},
          {"adjacency", accounting::to_string(p.adjacency)},
          {"covers", p.covers},
          {"not_covered", p.not_covered}};
}
template <class T>
json list(const std::vector<T>& items) {
  json out = json::array();
  for (const T& item : items) out.push_back(written(item));
  return out;
}

std::string text_of(const Manifest& m) {
  const json statement = {
      {"_type", kStatementType},
      {"subject", list(m.model)},
      {"predicateType", kPredicateType},
      {"predicate",
       {{"runs", m.runs},
        {"issued", m.issued},
        {"max_age", m.max_age},
        {"ledger", m.ledger ? written(*m.ledger) : json()},
        {"postures", list(m.postures)},
        {"layers", list(m.layers)},
        {"adapters", list(m.adapters)},
        {"generation_classes", list(m.generation)},
        {"privacy", written(m.privacy)}}},
  };
  return statement.dump();
}

// ---------------------------------------------------------------- reading

const json& member(const json& object, const char* name) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  if (at == object.end()) malformed(kOperator, "{} is missing", name);
  return *at;
}
void read(const json& value, const char* name, std::string& out) {
  if (!value.is_string()) malformed(kOperator, "{} must be a text", name);
  out = value.get_ref<const std::string&>();
}
void read(const json& value, const char* name, std::uint64_t& out) {
  if (!value.is_number_unsigned()) malformed(kOperator, "{} is not an integer", name);
  out = value.get<std::uint64_t>();
}
void read(const json& value, const char* name, bool& out) {
  if (!value.is_boolean()) malformed(kOperator, "{} is neither true nor false", name);
  out = value.get<bool>();
}
void read(const json& value, const char* name, Digest& out) {
  if (!value.is_string()) malformed(kOperator, "{} must be a text", name);
  const Bytes bytes = from_hex(value.get_ref<const std::string&>());
  if (bytes.size() != out.size()) malformed(kOperator, "{} does not have 64 digits", name);
  std::copy(bytes.begin(), bytes.end(), out.begin());
}
void read(const json& value, const char* name, accounting::Adjacency& out) {
  using accounting::Adjacency;
  for (const Adjacency each : {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne})
    if (value.is_string() && value.get_ref<const std::string&>() == accounting::to_string(each)) {
      out = each;
      return;
    }
  malformed(kOperator, "{} must be add_remove, zero_out or replace_one", name);
}
template <class T>
void take(const json& object, const char* name, T& out);

void read(const json& value, const char*, Posture& p) {
  take(value, "class", p.admissibility_class);
  take(value, "contributions", p.contributions);
  take(value, "withdrawn", p.withdrawn);
  take(value, "epochs", p.epochs);
  take(value, "clip_nano", p.clip);
  take(value, "multiplier_nano", p.multiplier);
  take(value, "uses", p.uses);
  take(value, "promised_epsilon_micro", p.epsilon);
  take(value, "noise_deviation_nano", p.deviation);
  take(value, "spent_epsilon_micro", p.spend);
}
void read(const json& value, const char*, Layer& l) {
  take(value, "layer", l.name);
  take(value, "classes", l.classes);
}
void read(const json& value, const char*, Adapter& a) {
  take(value, "adapter", a.name);
  take(value, "classes", a.classes);
  take(value, "scope", a.scope);
}
void read(const json& value, const char*, GenerationClass& g) {
  take(value, "name", g.name);
  take(value, "layers", g.layers);
  take(value, "adapters", g.adapters);
  take(value, "purposes", g.purposes);
  take(value, "serves_withdrawn", g.serves_withdrawn);
}
void read(const json& value, const char*, ModelFile& f) {
  take(value, "name", f.name);
  take(member(value, "digest"), "sha256", f.sha256);
}
void read(const json& value, const char*, LedgerView& l) {
  take(value, "public_key", l.key);
  take(value, "note", l.note);
  take(value, "accountant", l.accountant);
  take(value, "delta_atto", l.delta);
  take(value, "adjacency", l.adjacency);
}
void read(const json& value, const char*, PrivacyStatement& p) {
  take(value, "epsilon_upper_micro", p.epsilon);
  take(value, "delta_atto", p.delta);
  take(value, "adjacency", p.adjacency);
  take(value, "covers", p.covers);
  take(value, "not_covered", p.not_covered);
}
template <class T>
void read(const json& value, const char* name, std::vector<T>& out) {
  if (!value.is_array()) malformed(kOperator, "{} must be a list", name);
  out.resize(value.size());
  for (std::size_t i = 0; i < out.size(); ++i) read(value[i], name, out[i]);
}
template <class T>
void take(const json& object, const char* name, T& out) {
  read(member(object, name), name, out);
}

}  // namespace

std::string encode(const Manifest& manifest) {
  require_valid(manifest);
  std::string text = text_of(manifest);
  if (text.size() > kMostStatementBytes)
    invalid_input(kOperator, "the manifest would have {} bytes; at most {} are allowed",
                  text.size(), kMostStatementBytes);
  return text;
}

Manifest decode_statement(std::string_view text) {
  if (text.size() > kMostStatementBytes)
    malformed(kOperator, "{} bytes are too many for a manifest", text.size());
  const json statement = try_read_json(text);
  if (statement.is_discarded()) malformed(kOperator, "the statement is not JSON");
  Manifest m;
  take(statement, "subject", m.model);
  const json& predicate = member(statement, "predicate");
  take(predicate, "runs", m.runs);
  take(predicate, "issued", m.issued);
  take(predicate, "max_age", m.max_age);
  if (!member(predicate, "ledger").is_null()) take(predicate, "ledger", m.ledger.emplace());
  take(predicate, "postures", m.postures);
  take(predicate, "layers", m.layers);
  take(predicate, "adapters", m.adapters);
  take(predicate, "generation_classes", m.generation);
  take(predicate, "privacy", m.privacy);
  try {
    require_valid(m);
  } catch (const Error& error) {
    malformed(kOperator, "{}", error.sentence());
  }
  if (text_of(m) != text)
    malformed(kOperator,
              "the statement is not written like a manifest: the type, members or order differ");
  return m;
}

}  // namespace discreet::release
