#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"
#include "discreet/config/config_resolve.h"
#include "discreet/training/train.h"

namespace discreet::training {

// A run small enough for a test: two Gaussian clusters in the plane, one per class, as CSV files.
class SmallRun {
 public:
  SmallRun() {
    write("train.csv", 200, 1);
    write("test.csv", 50, 2);
    DpConfig& privacy = config.privacy;
    privacy.target_epsilon = 20;
    privacy.declared_size = 200;
    privacy.effective_batch_size = 20;
    privacy.target_steps = 30;
    privacy.accountant = AccountantKind::kRdp;  // fast
    privacy.noise_multiplier = 1;
    privacy.clip_ghost = true;
    privacy.nonfinite = NonfinitePolicy::kZero;
    privacy.seed = 3;
    config.data.format = DataFormat::kCsv;
    config.data.train = (folder / "train.csv").string();
    config.data.test = (folder / "test.csv").string();
    config.data.label = "class";
    config.data.classes = {"left", "right"};
    config.data.numeric = {{"x", {-4, 4}}, {"y", {-4, 4}}};
    config.run.checkpoint_every = 7;
    config.optimizer.rate = 1;
  }

  Config resolved() const {
    Config out = config;
    out.privacy = resolve(config.privacy).config;
    return out;
  }
  TrainOptions options(const char* name) const { return {.directory = folder / name}; }
  RunResult train(const char* name, bool resume = false, int threads = 1) const {
    TrainOptions o = options(name);
    o.resume = resume;
    o.threads = threads;
    return training::train(resolved(), o);
  }
  // An empty run with the secret of another, so that both draw the same noise.
  void share_secret(const char* from, const char* to) const {
    std::filesystem::create_directory(folder / to);
    std::filesystem::copy(folder / from / "secret.key", folder / to / "secret.key");
  }
  std::string read(const char* name, const char* file) const {
    const Bytes bytes = read_file(folder / name / file);
    return {bytes.begin(), bytes.end()};
  }
  void write(const char* name, int rows, unsigned seed) const {
    std::ofstream out(folder / name);
    out << "x,y,class\n";
    unsigned state = seed;
    const auto uniform = [&] {
      state = state * 1664525u + 1013904223u;
      return static_cast<double>(state >> 8) / (1 << 24) * 2 - 1;
    };
    for (int i = 0; i < rows; ++i) {
      const bool right = i % 2 != 0;
      const double x = (right ? 1 : -1) + uniform();
      out << x << ',' << uniform() << ',' << (right ? "right" : "left") << '\n';
    }
  }

  Folder folder;
  Config config;
};

inline std::vector<nlohmann::json> lines_of(const std::string& trace, const std::string& kind) {
  std::vector<nlohmann::json> out;
  std::istringstream in(trace);
  for (std::string line; std::getline(in, line);) {
    nlohmann::json object = nlohmann::json::parse(line);
    if (object.at("kind") == kind) out.push_back(std::move(object));
  }
  return out;
}

// What `act` throws.
inline Error error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kInvalidInput, "", ""};
}

inline void expect_same_run(const SmallRun& run, const char* a, const char* b) {
  EXPECT_EQ(run.read(a, "trace.jsonl"), run.read(b, "trace.jsonl"));
  EXPECT_EQ(run.read(a, "model.safetensors"), run.read(b, "model.safetensors"));
  EXPECT_EQ(run.read(a, "checkpoint.cbor"), run.read(b, "checkpoint.cbor"));
  EXPECT_EQ(run.read(a, "config.yaml"), run.read(b, "config.yaml"));
}

// Stops after that many steps of this process.
struct StopAfter {
  std::atomic<bool> stop = false;
  void on(TrainOptions& options, std::uint64_t step) {
    options.stop = &stop;
    options.progress = [this, step](const Progress& p) { stop = p.step >= step; };
  }
};

}  // namespace discreet::training
