// Reads one encoding a line, in hexadecimal. Answers "ok HEX", after building the value again from
// its parts with every map's entries in reverse, or "no SENTENCE".
#include <iostream>
#include <string>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace cbor = discreet::cbor;

namespace {

cbor::Value rebuild(const cbor::Value& value) {
  switch (value.type()) {
    case cbor::Type::kArray: {
      std::vector<cbor::Value> items;
      for (const cbor::Value& item : value.as_array()) items.push_back(rebuild(item));
      return cbor::array(std::move(items));
    }
    case cbor::Type::kMap: {
      std::vector<cbor::Entry> entries;
      for (const auto& [key, content] : value.as_map()) {
        entries.insert(entries.begin(), {rebuild(key), rebuild(content)});
      }
      return cbor::map(std::move(entries));
    }
    case cbor::Type::kTag: return cbor::tag(value.tag_number(), rebuild(value.tag_content()));
    case cbor::Type::kFloat: return value.as_float();
    case cbor::Type::kText: return value.as_text();
    case cbor::Type::kBytes: return value.as_bytes();
    default: return value;
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const cbor::Value value = cbor::decode(discreet::from_hex(line));
      std::cout << "ok " << discreet::to_hex(cbor::encode(rebuild(value))) << '\n';
    } catch (const discreet::Error& error) {
      std::cout << "no " << error.what() << '\n';
    }
  }
}
