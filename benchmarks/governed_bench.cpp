// What the ledger takes of a run on 60,000 signed contributions of 784 features, as many as MNIST
// has, with the model of `discreet demo --governed`. Prints one JSON object. An epoch's first step
// waits for the reservation of the epoch; what it takes beyond the median step is the ledger's.
//   governed_bench [EPOCHS]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>

#include "discreet/admission/descriptor.h"
#include "discreet/base/folder_testing.h"
#include "discreet/config/config_resolve.h"
#include "discreet/ledger/verify.h"
#include "discreet/training/train.h"

int main(int argc, char** argv) {
  using namespace discreet;
  using Clock = std::chrono::steady_clock;
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 3;
  constexpr std::size_t kRecords = 60'000, kFeatures = 784, kBatch = 256;
  constexpr admission::Instant kAt = 1'800'000'000;
  const Folder folder;
  const auto hospital = admission::SigningKey::from_seed(Bytes(32, 1));
  const auto steward = admission::SigningKey::from_seed(Bytes(32, 2));

  Config config;
  {
    std::ofstream data(folder / "train.csv"), anchors(folder / "anchors.jsonl");
    for (std::size_t i = 0; i < kFeatures; ++i) {
      const std::string name = fmt::format("p{}", i);
      data << name << ',';
      config.data.numeric[name] = {0, 9};
    }
    data << "digit\n";
    std::mt19937 random(1);
    constexpr const char* kClasses[] = {"open", "research", "clinical"};
    for (std::size_t row = 0; row < kRecords; ++row) {
      std::string line;
      for (std::size_t i = 0; i < kFeatures; ++i)
        line += {static_cast<char>('0' + random() % 10), ','};
      line += static_cast<char>('0' + row % 10);
      data << line << '\n';
      admission::Descriptor d;
      d.contributor = std::to_string(row);
      d.data_class = kClasses[row % 3];
      d.clip_norm = {admission::Scaled::kUnit};
      d.noise_multiplier = {admission::Scaled::kUnit / 2};
      d.occurrences = 30;
      d.not_before = kAt - 86'400;
      d.not_after = kAt + 100 * 86'400;
      d.corpus = "bench";
      d.content_anchor = sha256(bytes_of(line));
      const Bytes bytes = encode(d);
      anchors << R"({"descriptor": ")" << to_hex(bytes) << R"(", "attestation": ")"
              << to_hex(attest(hospital, bytes)) << "\"}\n";
    }
    std::ofstream(folder / "steward.key") << steward.to_pem({});
    std::filesystem::permissions(folder / "steward.key", std::filesystem::perms(0600));
    std::ofstream(folder / "policy.yaml")
        << "corpus: bench\naccountant: pld\nfloors: {clip_norm: 0.01, noise_multiplier: 0.3}\n"
           "most_validity_days: 800\nepoch_seconds: 86400\nretention_epochs: 12\n"
           "noise: {stddev: 3, clipping: flat}\nclasses:\n"
           "  open: {clip_norm: 1, noise_multiplier: 0.5, most_occurrences: 30, profile: {whole: "
           "true}}\n"
           "  research: {clip_norm: 1, noise_multiplier: 0.5, most_occurrences: 30, profile: "
           "{depth: "
           "[0.5, 1]}}\n"
           "  clinical: {clip_norm: 1, noise_multiplier: 0.5, most_occurrences: 30, profile: "
           "{layers: "
           "[1, 1]}}\n"
           "keys:\n  - {name: hospital, public_key: "
        << to_hex(hospital.public_key().bytes()) << ", classes: [open, research, clinical]}\n";
  }
  const auto path = [&](const char* name) { return (folder / name).string(); };
  config.data.format = DataFormat::kCsv;
  config.data.train = path("train.csv");
  config.data.label = "digit";
  config.data.classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  config.model.kind = ModelKind::kMlp;
  config.model.hidden = {32};
  config.corpus.policy = path("policy.yaml");
  config.corpus.descriptors = path("anchors.jsonl");
  config.corpus.uses = path("corpus.uses");
  config.corpus.ledger = path("ledger.db");
  config.corpus.ledger_key = path("steward.key");
  config.corpus.at = admission::instant_text(kAt);
  DpConfig& privacy = config.privacy;
  privacy.adjacency = accounting::Adjacency::kZeroOut;
  privacy.nonfinite = NonfinitePolicy::kZero;
  privacy.target_epsilon = 30;
  privacy.declared_size = kRecords;
  privacy.effective_batch_size = kBatch;
  privacy.clip_ghost = true;
  const std::uint64_t per_epoch = (kRecords + kBatch - 1) / kBatch;
  privacy.target_steps = per_epoch * static_cast<std::uint64_t>(epochs);
  config.privacy = resolve(privacy).config;

  std::vector<double> steps;
  Clock::time_point last;
  training::TrainOptions options{.directory = folder / "run"};
  options.threads = 2;
  options.progress = [&](const training::Progress&) {
    const auto now = Clock::now();
    if (last != Clock::time_point())
      steps.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  };
  training::train(config, options);
  double total = 0, waiting = 0;
  std::vector<double> sorted = steps;
  std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
  const double median = sorted[sorted.size() / 2];
  // steps[i] is step i + 1: the first of an epoch is a multiple of per_epoch.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    total += steps[i];
    if ((i + 1) % per_epoch == 0) waiting += steps[i] - median;
  }
  ledger::VerifyOptions how;
  how.attestations = false;
  const bool ok = ledger::verify(folder / "ledger.db", how).ok;
  const double per = waiting / (epochs - 1),
               epoch = total / static_cast<double>(steps.size()) * static_cast<double>(per_epoch);
  fmt::print(
      "{{\"ok\": {}, \"epoch_seconds\": {}, \"ledger_seconds\": {}, \"share\": {}, "
      "\"step_seconds\": {}}}\n",
      ok, epoch, per, per / epoch, median);
  return ok ? 0 : 1;
}
