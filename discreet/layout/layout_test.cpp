#include "discreet/layout/layout.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/layout/gradients.h"

namespace discreet {
namespace {

ModelLayout small_model() {
  return ModelLayout({{.name = "embed.weight", .shape = {100, 8}, .trainable = false},
                      {.name = "block.0.weight", .shape = {8, 8}, .heads = Slices{4, 0}},
                      {.name = "block.0.bias", .shape = {8}},
                      {.name = "block.0.lora.a", .shape = {2, 8}, .adapter = "lora"},
                      {.name = "head.weight", .shape = {8, 10}, .group = "top"}});
}

TEST(Layout, CountsWhatIsTrainableAndPrivate) {
  const ModelLayout layout = small_model();
  EXPECT_EQ(layout.parameters(), 800u + 64 + 8 + 16 + 80);
  EXPECT_EQ(layout.trainable_parameters(), 64u + 8 + 16 + 80);
  const std::vector<std::string> modules = {"block.0.lora"};
  EXPECT_EQ(layout.with_public(modules).private_parameters(), 64u + 8 + 80);
  EXPECT_EQ(layout.with_public(modules).trainable_parameters(), layout.trainable_parameters());
}

TEST(Layout, TakesLayerAndGroupFromTheNameUnlessGiven) {
  const ModelLayout layout = small_model();
  EXPECT_EQ(layout.tensors()[1].layer, "block.0");
  EXPECT_EQ(layout.tensors()[1].group, "block.0");
  EXPECT_EQ(layout.tensors()[4].layer, "head");
  EXPECT_EQ(layout.tensors()[4].group, "top");
}

TEST(Layout, PartitionsInOrderOfTheFirstTensorAndLeavesOutWhatIsNotPrivate) {
  const ModelLayout layout = small_model();
  const Partition layers = partition(layout, Cut::kLayer);
  EXPECT_EQ(layers.names, (std::vector<std::string>{"block.0", "block.0.lora", "head"}));
  EXPECT_EQ(layers.part_of, (std::vector<std::uint32_t>{Partition::kNone, 0, 0, 1, 2}));
  EXPECT_EQ(layers.elements, (std::vector<std::uint64_t>{72, 16, 80}));
  EXPECT_EQ(partition(layout, Cut::kFlat).elements, (std::vector<std::uint64_t>{168}));
  EXPECT_EQ(partition(layout, Cut::kGroup).names.back(), "top");
  EXPECT_EQ(partition(layout, Cut::kTensor).parts(), 4u);
  EXPECT_EQ(partition(ModelLayout({}), Cut::kFlat).parts(), 0u);
}

TEST(Layout, RoundTripsThroughCanonicalBytes) {
  const ModelLayout layout = small_model();
  EXPECT_EQ(ModelLayout::decode(layout.encode()), layout);
  EXPECT_NE(layout.hash(), ModelLayout({}).hash());
  Bytes cut = layout.encode();
  cut.pop_back();
  EXPECT_THROW(ModelLayout::decode(cut), Error);
}

TEST(Layout, RefusesWhatDescribesNoModelAndNamesTheTensor) {
  const auto sentence = [](std::vector<Tensor> tensors) -> std::string {
    try {
      ModelLayout layout(std::move(tensors));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
      return error.sentence();
    }
    return "accepted";
  };
  EXPECT_EQ(sentence({{.name = "a"}, {.name = "a"}}), "two tensors are named a");
  EXPECT_EQ(sentence({{.name = ""}}), "tensor 0 has no name");
  EXPECT_EQ(sentence({{.name = "a", .shape = {1ull << 40, 1ull << 40}}}),
            "tensor a has more than 2^51 elements");
  EXPECT_EQ(sentence({{.name = "a", .shape = {6}, .heads = Slices{4, 0}}}),
            "tensor a: 4 heads do not divide dimension 0 of length 6");
}

TEST(Layout, NamesTheNearestTensorAndRefusesAMisspeltPublicModule) {
  try {
    small_model().index_of("head.wieght");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.sentence(), "unknown tensor head.wieght; did you mean head.weight?");
  }
  const std::vector<std::string> misspelt = {"haed"};
  try {
    small_model().with_public(misspelt);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    EXPECT_EQ(error.sentence(), "public_modules: no tensor belongs to haed; did you mean head?");
  }
}

TEST(Layout, MakesWholeGroupsPublic) {
  const ModelLayout layout({{.name = "a.w", .group = "front"},
                            {.name = "b.w", .group = "front"},
                            {.name = "c.w", .group = "back"}});
  const std::vector<std::string> front = {"front"};
  const ModelLayout changed = layout.with_public({}, front);
  EXPECT_TRUE(changed.tensors()[0].is_public && changed.tensors()[1].is_public);
  EXPECT_FALSE(changed.tensors()[2].is_public);
  const std::vector<std::string> misspelt = {"frnot"};
  try {
    layout.with_public({}, misspelt);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.sentence(), "public_groups: no tensor belongs to frnot; did you mean front?");
  }
}

TEST(Layout, GradientSumHasRoomForPrivateTensorsOnly) {
  GradientSum sum(small_model());
  EXPECT_EQ(sum.values().size(), 168u);
  EXPECT_TRUE(sum.tensor(0).empty());
  EXPECT_EQ(sum.tensor(4).size(), 80u);
  sum.tensor(4)[79] = 2;
  EXPECT_EQ(sum.values()[167], 2);
}

}  // namespace
}  // namespace discreet
