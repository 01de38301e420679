// An optimizer step of a network 784-512-512-10 on batches of 256, private and ordinary, by the
// same code: sample, gradients, clip, noise, account, update, trace.
//   training_bench                       reads lines "ordinary|ghost|fused THREADS STEPS", answers
//                                        each with the seconds of every step
//   training_bench memory MODE THREADS   the peak memory in bytes, after 20 steps
//   training_bench digest MODE THREADS   the SHA-256 of the parameters after 20 steps
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "discreet/base/hash.h"
#include "discreet/config/config_resolve.h"
#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/run/trace.h"
#include "discreet/training/network.h"
#include "discreet/training/optimizer.h"

namespace {

using namespace discreet;
using namespace discreet::mechanism;

constexpr std::size_t kRecords = 60'000, kBatch = 256;
const std::vector<std::size_t> kSizes = {784, 512, 512, 10};

struct Data {
  std::vector<float> x;
  std::vector<std::uint32_t> labels;
  Data() : x(kRecords * kSizes[0]), labels(kRecords) {
    std::uint32_t state = 1;
    const auto next = [&] { return state = state * 1664525u + 1013904223u; };
    for (float& v : x) v = static_cast<float>(next() >> 8) * 0x1p-24f;
    for (std::uint32_t& label : labels) label = (next() >> 8) % 10;
  }
};

Config config_of(const std::string& mode) {
  Config config;
  config.privacy.enabled = mode != "ordinary";
  config.privacy.declared_size = kRecords;
  config.privacy.effective_batch_size = kBatch;
  config.privacy.noise_multiplier = 1.1;
  config.privacy.target_epsilon = 8;
  config.privacy.target_steps = 20'000;
  config.privacy.clip_ghost = true;
  config.privacy.clip_strategy = mode == "fused" ? ClipStrategy::kPerLayer : ClipStrategy::kGhost;
  config.privacy.fused_kernel = mode == "fused";
  config.privacy = resolve(config.privacy).config;
  return config;
}

class Run {
 public:
  Run(const Data& data, const std::string& mode, int threads)
      : data_(data),
        threads_(threads),
        config_(config_of(mode)),
        network_({kSizes}, random::Key::from_seed(1)),
        optimizer_({.rate = 0.1, .momentum = 0.9}, network_.layout()),
        sampler_(plan_sampling(config_.privacy), kRecords,
                 random::Generator::secure(random::Key::from_seed(2))),
        mechanism_(config_, network_.layout(),
                   mechanism_streams(config_.privacy, random::Key::from_seed(3)),
                   kernel_replay_token(config_, Digest{}), threads),
        path_(std::filesystem::temp_directory_path() /
              ("discreet_training_bench_" + mode + std::to_string(threads) + ".jsonl")) {
    std::filesystem::remove(path_);
    trace_ = std::make_unique<run::TraceWriter>(
        run::TraceWriter::create(path_, mechanism_.trace_header()));
  }
  ~Run() { std::filesystem::remove(path_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void step() {
    const std::vector<std::uint64_t> batch = sampler_.batch(mechanism_.t());
    std::vector<float> x;
    if (!gradients_.activations.empty()) x = std::move(gradients_.activations[0]);
    data::gather(data_.x, kSizes[0], batch, threads_, x);
    std::vector<std::uint32_t> labels;
    for (const std::uint64_t record : batch) labels.push_back(data_.labels[record]);
    gradients_ = network_.backward(std::move(x), labels, {}, threads_, std::move(gradients_));
    mechanism_.accumulate(gradients_.pass);
    StepResult released = mechanism_.release();
    std::vector<std::span<float>> parameters;
    for (std::size_t i = 0; i < network_.layout().size(); ++i)
      parameters.push_back(network_.tensor(i));
    optimizer_.step(released.gradients, std::vector<double>(parameters.size()), parameters,
                    threads_);
    trace_->append("iter", trace_iter(released));
    mechanism_.reuse(std::move(released.gradients));
  }

  Digest digest() {
    Sha256 hash;
    for (std::size_t i = 0; i < network_.layout().size(); ++i) {
      const auto values = std::as_bytes(network_.tensor(i));
      hash.update({reinterpret_cast<const std::uint8_t*>(values.data()), values.size()});
    }
    return hash.finish();
  }

 private:
  const Data& data_;
  int threads_;
  Config config_;
  training::Network network_;
  training::Optimizer optimizer_;
  Sampler sampler_;
  Mechanism mechanism_;
  training::BackwardResult gradients_;
  std::filesystem::path path_;
  std::unique_ptr<run::TraceWriter> trace_;
};

void answer(std::istream& in, std::ostream& out) {
  const Data data;
  std::map<std::pair<std::string, int>, std::unique_ptr<Run>> runs;
  std::string mode;
  int threads = 0, steps = 0;
  while (in >> mode >> threads >> steps) {
    auto& run = runs[{mode, threads}];
    if (!run) run = std::make_unique<Run>(data, mode, threads);
    for (int k = 0; k < steps; ++k) {
      const auto begin = std::chrono::steady_clock::now();
      run->step();
      out << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()
          << (k + 1 < steps ? ' ' : '\n');
    }
    out.flush();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    answer(std::cin, std::cout);
    return 0;
  }
  if (argc != 4) return 2;
  const Data data;
  Run run(data, argv[2], std::stoi(argv[3]));
  for (int k = 0; k < 20; ++k) run.step();
  if (std::string(argv[1]) == "digest") {
    std::cout << to_hex(run.digest()) << '\n';
    return 0;
  }
  // Not getrusage: its peak is inherited from the process that started this one.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) std::cout << std::stoull(line.substr(6)) * 1024 << '\n';
  return 0;
}
