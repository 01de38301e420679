#include "discreet/training/safetensors.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"

namespace discreet::training {
namespace {

const ModelLayout kLayout({{.name = "b.weight", .shape = {2, 3}},
                           {.name = "a", .shape = {0}},
                           {.name = "c"}});
const std::vector<float> kWeight{1, 2, 3, 4, 5, 6}, kNone{}, kScalar{-0.5f};

Bytes sample() {
  return encode_safetensors(kLayout, std::vector<std::span<const float>>{kWeight, kNone, kScalar},
                            {{"producer", "test"}});
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const auto tensors = decode_safetensors(sample());
  ASSERT_EQ(tensors.size(), 3u);
  for (const NamedTensor& tensor : tensors) {
    const std::size_t i = kLayout.index_of(tensor.name);
    EXPECT_EQ(tensor.shape, kLayout.tensors()[i].shape);
    EXPECT_EQ(tensor.values, i == 0 ? kWeight : i == 1 ? kNone : kScalar);
  }
}

TEST(Safetensors, NumbersBeginAtAMultipleOfEight) {
  const Bytes bytes = sample();
  EXPECT_EQ((bytes.size() - 7 * sizeof(float)) % 8, 0u);
}

TEST(Safetensors, RefusesEveryCutAndSizesThatDoNotFit) {
  const Bytes bytes = sample();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode_safetensors(ByteView(bytes).first(length)), Error) << length;
  Bytes longer = bytes;
  longer.push_back(0);
  EXPECT_THROW(decode_safetensors(longer), Error);
  EXPECT_THROW(encode_safetensors(kLayout, std::vector<std::span<const float>>{kWeight}, {}),
               Error);
}

// The name and shape are long enough to be on the heap: g++ 12 freed them twice.
TEST(Safetensors, RefusesAHeaderThatLacksAField) {
  const std::string name(100, 'n');
  for (const char* fields :
       {R"("dtype":"F32","shape":[2,3])", R"("dtype":"F32","data_offsets":[0,24])",
        R"("shape":[2,3],"data_offsets":[0,24])",
        R"("dtype":"F32","shape":[2,3],"data_offsets":[0])",
        R"("dtype":"F32","shape":[2,3],"data_offsets":[0,"24"])",
        R"("dtype":"F32","shape":[2,3],"data_offsets":{})", ""}) {
    const std::string header = "{\"" + name + "\":{" + fields + "}}";
    Bytes bytes(8);
    for (std::size_t i = 0; i < 8; ++i)
      bytes[i] = static_cast<std::uint8_t>(header.size() >> 8 * i);
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.resize(bytes.size() + 24);
    EXPECT_THROW(decode_safetensors(bytes), Error) << header;
  }
}

}  // namespace
}  // namespace discreet::training
