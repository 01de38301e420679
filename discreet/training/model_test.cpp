#include "discreet/training/model.h"

#include <gtest/gtest.h>

#include <fstream>

#include "discreet/base/error.h"
#include "discreet/training/safetensors.h"
#include "discreet/training/train_testing.h"

namespace discreet::training {
namespace {

// A run's directory whose model.safetensors is of `shape`, whatever its config.yaml says.
ErrorCode refusal(const Config& config, const NetworkShape& shape,
                  const std::map<std::string, std::string>& metadata = {}) {
  const Folder run;
  std::ofstream(run / "config.yaml") << write_yaml(config);
  const Network network(shape, random::Key::from_seed(1));
  std::vector<std::span<const float>> values;
  for (std::size_t i = 0; i < network.layout().size(); ++i) values.push_back(network.tensor(i));
  write_atomically(run / "model.safetensors",
                   encode_safetensors(network.layout(), values, metadata));
  try {
    load_model(run.path());
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "the model was taken";
  return {};
}

// The layers of 1,000,000 would take 4 TB.
TEST(Model, OfAnotherWidthThanItsFileTakesNoMemory) {
  Config config = SmallRun().resolved();
  config.model.kind = ModelKind::kMlp;
  config.model.hidden = {1'000'000, 1'000'000};
  EXPECT_EQ(refusal(config, {.sizes = {2, 3, 3, 2}}), ErrorCode::kInvalidInput);
}

// Wider records would take memory for frequencies that no weight reads.
TEST(Model, OfOtherFeaturesThanItsFileIsRejected) {
  Config config = SmallRun().resolved();
  config.model.features = FeatureMapKind::kFourier;
  config.model.fourier_count = 1u << 16;
  EXPECT_EQ(refusal(config, {.sizes = {2, 2}}), ErrorCode::kInvalidInput);
}

TEST(Model, WithMetadataThatIsNoListOfNamesIsMalformed) {
  const Config config = SmallRun().resolved();
  for (const char* features : {"", "[", "{}", "[1]"})
    EXPECT_EQ(refusal(config, {.sizes = {2, 2}}, {{"features", features}}), ErrorCode::kMalformed);
}

}  // namespace
}  // namespace discreet::training
