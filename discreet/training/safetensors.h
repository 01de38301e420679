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

// `model.safetensors`: an 8-byte little-endian length, a JSON header, then the numbers of all
// tensors, binary32 little-endian, in layout order. Equal models have equal bytes. Python's
// `safetensors` can read it.

// values: one span per tensor of the layout. metadata: text by name; it must not depend on the data
// beyond what was released. Throws kInvalidInput for sizes that do not fit.
Bytes encode_safetensors(const ModelLayout& layout, std::span<const std::span<const float>> values,
                         const std::map<std::string, std::string>& metadata);

struct NamedTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
// All tensors, in the order of their offsets. Throws kMalformed, naming the tensor, for types other
// than F32, offsets that do not cover the data exactly, or bytes that are not such a file.
std::vector<NamedTensor> decode_safetensors(ByteView bytes);
// Name and shape of each tensor, of any type, in the order of their offsets; values are empty.
// Throws kMalformed as above, except for types.
std::vector<NamedTensor> safetensors_shapes(ByteView bytes);
// The metadata of such a file; kMalformed.
std::map<std::string, std::string> safetensors_metadata(ByteView bytes);

}  // namespace discreet::training
