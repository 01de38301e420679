#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "discreet/base/bytes.h"
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

}  // namespace discreet::training
