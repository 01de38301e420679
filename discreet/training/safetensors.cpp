#include "discreet/training/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"

namespace discreet::training {
namespace {

static_assert(std::endian::native == std::endian::little, "binary32 is written as it is in memory");

constexpr const char* kOperator = "model.safetensors";

struct Parts {
  nlohmann::json header;
  ByteView data;
};
Parts parts_of(ByteView bytes) {
  if (bytes.size() < 8)
    malformed(kOperator, "the file is shorter than the length in its first bytes");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | bytes[static_cast<std::size_t>(i)];
  if (length > bytes.size() - 8) malformed(kOperator, "the header is longer than the file");
  const ByteView text = bytes.subspan(8, length);
  return {read_json({reinterpret_cast<const char*>(text.data()), text.size()}),
          bytes.subspan(8 + length)};
}

}  // namespace

Bytes encode_safetensors(const ModelLayout& layout, std::span<const std::span<const float>> values,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<cbor::Entry> about;
  for (const auto& [key, text] : metadata) about.push_back({key, text});
  std::vector<cbor::Entry> entries{{"__metadata__", cbor::map(std::move(about))}};
  std::uint64_t offset = 0;
  bool fits = values.size() == layout.size();
  for (std::size_t i = 0; fits && i < layout.size(); ++i) {
    const Tensor& tensor = layout.tensors()[i];
    fits = values[i].size() == layout.elements(i);
    const std::uint64_t end = offset + 4 * layout.elements(i);
    entries.push_back(
        {tensor.name, cbor::map({{"dtype", "F32"},
                                 {"shape", cbor::array({tensor.shape.begin(), tensor.shape.end()})},
                                 {"data_offsets", cbor::array({offset, end})}})});
    offset = end;
  }
  if (!fits) invalid_input(kOperator, "the values belong to another model");
  std::string header = to_json(cbor::map(std::move(entries)));
  header.append((8 - header.size() % 8) % 8, ' ');  // the numbers start at a multiple of 8
  Bytes out;
  for (int shift = 0; shift < 64; shift += 8)
    out.push_back(static_cast<std::uint8_t>(header.size() >> shift & 0xff));
  out.insert(out.end(), header.begin(), header.end());
  const std::size_t begin = out.size();
  out.resize(begin + offset);
  std::uint8_t* to = out.data() + begin;
  for (const std::span<const float> tensor : values) {
    if (!tensor.empty()) std::memcpy(to, tensor.data(), tensor.size_bytes());
    to += tensor.size_bytes();
  }
  return out;
}

std::map<std::string, std::string> safetensors_metadata(ByteView bytes) try {
  return parts_of(bytes)
      .header.value("__metadata__", nlohmann::json::object())
      .get<std::map<std::string, std::string>>();
} catch (const nlohmann::json::exception& error) {
  malformed(kOperator, "the header is malformed: {}", error.what());
}

namespace {

struct Place {
  NamedTensor tensor;
  std::string type;
  std::uint64_t begin, end;  // in the data
};

// Ascending, without gaps.
std::vector<Place> places_of(const Parts& parts) {
  std::vector<Place> places;
  for (const auto& [name, entry] : parts.header.items()) {
    if (name == "__metadata__") continue;
    // Every part before the first is built: g++ 12 destroys twice what stands in nested braces
    // before an initializer that throws (tools/check_initializers.py).
    const auto& offsets = entry.at("data_offsets");
    const auto begin = offsets.at(0).get<std::uint64_t>(), end = offsets.at(1).get<std::uint64_t>();
    auto shape = entry.at("shape").get<std::vector<std::uint64_t>>();
    auto type = entry.at("dtype").get<std::string>();
    places.push_back({NamedTensor{name, std::move(shape), {}}, std::move(type), begin, end});
  }
  std::ranges::sort(places, {}, [](const Place& p) { return std::pair(p.begin, p.end); });
  std::uint64_t expected = 0;
  for (const Place& place : places) {
    if (place.begin != expected || place.end < place.begin || place.end > parts.data.size())
      malformed(kOperator, "the offsets of {} do not match its shape", place.tensor.name);
    expected = place.end;
  }
  if (expected != parts.data.size()) malformed(kOperator, "bytes follow the last tensor");
  return places;
}

}  // namespace

std::vector<NamedTensor> safetensors_shapes(ByteView bytes) try {
  std::vector<NamedTensor> out;
  for (Place& place : places_of(parts_of(bytes))) out.push_back(std::move(place.tensor));
  return out;
} catch (const nlohmann::json::exception& error) {
  malformed(kOperator, "the header is malformed: {}", error.what());
}

std::vector<NamedTensor> decode_safetensors(ByteView bytes) try {
  const Parts parts = parts_of(bytes);
  std::vector<NamedTensor> out;
  for (Place& place : places_of(parts)) {
    if (place.type != "F32") malformed(kOperator, "{} is not F32", place.tensor.name);
    std::uint64_t elements = 1;
    for (const std::uint64_t n : place.tensor.shape)
      if (__builtin_mul_overflow(elements, n, &elements))
        malformed(kOperator, "a shape is too large");
    if ((place.end - place.begin) % 4 != 0 || (place.end - place.begin) / 4 != elements)
      malformed(kOperator, "the offsets of {} do not match its shape", place.tensor.name);
    place.tensor.values.resize(elements);
    if (elements != 0)
      std::memcpy(place.tensor.values.data(), parts.data.data() + place.begin, 4 * elements);
    out.push_back(std::move(place.tensor));
  }
  return out;
} catch (const nlohmann::json::exception& error) {
  malformed(kOperator, "the header is malformed: {}", error.what());
}

}  // namespace discreet::training
