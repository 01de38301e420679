#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/layout/layout.h"

namespace discreet::training {

// `model.safetensors`: 8 bytes little-endian length, a JSON header, then the numbers of all
// tensors, binary32 little-endian, in the order of the layout. The same model has the same bytes.
// Python's `safetensors` opens it.

// values: one span per tensor of the layout. metadata: text by name; nothing in it may depend on
// the data beyond what was released. Throws kInvalidInput for sizes that do not fit.
Bytes encode_safetensors(const ModelLayout& layout, std::span<const std::span<const float>> values,
                         const std::map<std::string, std::string>& metadata);

struct NamedTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
// All tensors, in the order of their offsets. Throws kMalformed, naming the tensor, for other types
// than F32, offsets that do not cover the data exactly, or bytes that are no such file.
std::vector<NamedTensor> decode_safetensors(ByteView bytes);
// Name and shape of each tensor, of any type, in the order of their offsets; values are left empty.
// kMalformed as above, but for what types mean.
std::vector<NamedTensor> safetensors_shapes(ByteView bytes);
// The metadata of such a file; kMalformed.
std::map<std::string, std::string> safetensors_metadata(ByteView bytes);

}  // namespace discreet::training
