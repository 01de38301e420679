#include <cmath>
#include <nlohmann/json.hpp>

#include "discreet/config/config_document.h"
#include "discreet/config/config_table.h"

namespace discreet {
namespace {

using Json = nlohmann::ordered_json;

Json limit(double x, bool is_integer) {
  if (!is_integer) return x;
  return x >= 0x1p64 ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(x);
}

void add_range(Json& schema, const Range& range, bool is_integer) {
  if (std::isfinite(range.least)) {
    schema[range.above ? "exclusiveMinimum" : "minimum"] = limit(range.least, is_integer);
  }
  if (range.most < 1e300) {
    schema[range.below ? "exclusiveMaximum" : "maximum"] = limit(range.most, is_integer);
  }
}

template <class Target>
Json schema_of(const Key<Target>& key);

template <class Target>
Json schema_of(const KeyTree<Target>& tree) {
  if (tree.key != nullptr) return schema_of(*tree.key);
  Json properties = Json::object();
  for (const KeyTree<Target>& child : tree.children) properties[child.name] = schema_of(child);
  return {{"type", {"object", "null"}},
          {"additionalProperties", false},
          {"properties", std::move(properties)}};
}

Json names() { return {{"minLength", 1}, {"maxLength", 1024}}; }

// YAML reads 0 or true in a list of words as no text; here it is the word.
Json words() {
  Json item = names();
  item["type"] = {"string", "number", "boolean"};
  return {{"type", "array"}, {"items", std::move(item)}};
}

Json bounds() {
  return {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
}

template <class Target>
Json content_of(const Key<Target>& key) {
  Json schema;
  switch (key.type) {
    case KeyType::kBool: schema["type"] = "boolean"; break;
    case KeyType::kInteger:
      schema["type"] = "integer";
      add_range(schema, key.range, true);
      break;
    case KeyType::kNumber:
      schema["type"] = "number";
      add_range(schema, key.range, false);
      break;
    case KeyType::kChoice: schema["enum"] = key.choices; break;
    case KeyType::kText:
      schema = {{"type", "string"}, {"minLength", 1}, {"maxLength", 1024}};
      if (key.digits != 0) {
        schema = {{"type", "string"},
                  {"pattern", "^[0-9a-f]{" + std::to_string(key.digits) + "}$"}};
      }
      break;
    case KeyType::kTextList:
      schema = words();
      if (key.may_hold_empty) schema["items"]["minLength"] = 0;
      break;
    case KeyType::kIntegerList: {
      Json item = {{"type", "integer"}};
      add_range(item, key.range, true);
      schema = {{"type", "array"}, {"items", std::move(item)}};
      break;
    }
    case KeyType::kBounds:
      schema = {{"anyOf", {bounds(), {{"type", "array"}, {"maxItems", 0}}}}};
      break;
    case KeyType::kBoundsMap:
    case KeyType::kWordsMap:
      schema = {{"type", "object"},
                {"propertyNames", names()},
                {"additionalProperties", key.type == KeyType::kBoundsMap ? bounds() : words()}};
      break;
    case KeyType::kSpellingsMap:
      schema = {{"type", "object"},
                {"propertyNames", names()},
                {"additionalProperties",
                 {{"type", "object"},
                  {"propertyNames", names()},
                  {"additionalProperties", words()["items"]}}}};
      break;
    case KeyType::kNumberMap: {
      Json number = {{"type", "number"}};
      add_range(number, key.range, false);
      schema = {{"type", "object"},
                {"propertyNames", names()},
                {"additionalProperties", std::move(number)}};
      break;
    }
    case KeyType::kOverrideMap:
      schema = {{"type", "object"},
                {"propertyNames", names()},
                {"additionalProperties", schema_of(tree_of(override_keys()))}};
      break;
  }
  return schema;
}

struct ToJson {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(const OverrideMap&) const { return Json::object(); }  // a default is empty
  template <class T>
  Json operator()(const T& value) const {
    return value;
  }
};

template <class Target>
Json schema_of(const Key<Target>& key) {
  Json schema = content_of(key);
  if (key.type == KeyType::kNumber && !key.choices.empty()) {
    schema = {{"anyOf", {schema, {{"enum", key.choices}}}}};
  }
  if (key.nullable) schema = {{"anyOf", {schema, {{"type", "null"}}}}};
  schema["description"] =
      key.default_if.empty() ? key.description : key.description + ". Default: " + key.default_if;
  schema["default"] = std::visit(ToJson{}, key.get(Target{}));
  return schema;
}

}  // namespace

std::string config_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Configuration of discreet"}};
  schema.update(schema_of(tree_of(config_keys())));
  schema["type"] = "object";
  schema["required"] = {"security"};
  Json& privacy = schema["properties"]["security"]["properties"]["differential_privacy"];
  privacy["if"] = {{"properties", {{"enabled", {{"const", false}}}}}, {"required", {"enabled"}}};
  privacy["else"] = {{"required", {"target_epsilon"}}};
  return schema.dump(2) + "\n";
}

}  // namespace discreet
