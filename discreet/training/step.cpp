#include "discreet/training/step.h"

#include <algorithm>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/training/per_sample.h"

namespace discreet::training {
namespace {

using mechanism::StepResult;

// A run of records that is clipped at once.
struct Piece {
  std::span<const std::uint64_t> records;
  std::size_t first;  // its place in the batch
  bool more;          // of the same microbatch
};

// gradient_accumulation_steps microbatches of equal size up to one record, each cut into pieces of
// at most max_microbatch records; an empty microbatch is one empty piece.
std::vector<Piece> pieces_of(std::span<const std::uint64_t> batch, const DpConfig& privacy) {
  std::vector<Piece> out;
  const std::uint64_t parts = privacy.gradient_accumulation_steps;
  for (std::uint64_t m = 0; m < parts; ++m) {
    std::size_t begin = batch.size() * m / parts;
    const std::size_t end = batch.size() * (m + 1) / parts;
    do {
      const std::size_t length = std::min<std::size_t>(privacy.max_microbatch, end - begin);
      out.push_back({batch.subspan(begin, length), begin, begin + length < end});
      begin += length;
    } while (begin < end);
  }
  return out;
}

void compute_gradients(Training& training, std::span<const std::uint64_t> records) {
  const data::Dataset& data = training.train;
  std::vector<float> x;
  if (!training.gradients.activations.empty()) x = std::move(training.gradients.activations[0]);
  data::gather(data.x, data.features, records, training.threads, x);
  std::vector<std::uint32_t> labels;
  std::vector<float> targets;
  for (const std::uint64_t record : records)
    if (data.classes != 0)
      labels.push_back(data.label[record]);
    else
      targets.push_back(data.target[record]);
  training.gradients = training.network.backward(std::move(x), labels, targets, training.threads,
                                                 std::move(training.gradients));
}

void add_to(EpochTally& tally, const Losses& own) {
  tally.records += own.losses.size();
  tally.correct += own.correct;
  for (const float loss : own.losses) tally.loss += static_cast<double>(loss);
}

// classes: of the records, if they are contributions; else empty.
void accumulate(Training& training, bool more, std::span<const std::uint32_t> classes) {
  const BackwardResult& gradients = training.gradients;
  if (training.mechanism.takes_passes()) {
    training.mechanism.accumulate(gradients.pass, more, classes);
    return;
  }
  // Strategies that need each record's own gradient.
  for_each_explicit(gradients.pass, training.mechanism.layout(),
                    [&](const PerSampleGradients<double>& explicit_, bool last) {
                      const auto own = classes.first(std::min(classes.size(), explicit_.records));
                      training.mechanism.accumulate(explicit_, more || !last, own);
                      classes = classes.subspan(own.size());
                    });
}

// The variance of the noise on each tensor of the release, for Adam's second moment.
std::vector<double> noise_variance(const mechanism::Allocation& allocation, double sigma,
                                   double batch) {
  const Partition& parts = allocation.plan.partition;
  std::vector<double> out(parts.part_of.size());
  if (!(sigma > 0)) return out;
  const accounting::GaussianGroups groups = gaussian_groups(allocation, sigma);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t g = parts.part_of[i];
    if (g == Partition::kNone) continue;
    const double stddev = groups.groups[g].noise_multiplier * allocation.plan.clip[g] / batch;
    out[i] = stddev * stddev;
  }
  return out;
}

void update(Training& training, const StepResult& released,
            const mechanism::Allocation& allocation) {
  const double batch = static_cast<double>(training.mechanism.sampling().batch.value_or(1));
  std::vector<std::span<float>> parameters;
  for (std::size_t i = 0; i < training.network.layout().size(); ++i)
    parameters.push_back(training.network.tensor(i));
  training.optimizer.step(released.gradients,
                          noise_variance(allocation, released.metrics.noise_scale_sigma, batch),
                          parameters, training.threads);
}

// At the end of an epoch, and of the run.
std::optional<Evaluation> evaluation_if_due(Training& training) {
  const std::uint64_t t = training.mechanism.t();
  const std::uint64_t epoch = training.mechanism.sampling().steps_per_epoch;
  if (t % epoch != 0 && t != training.planned_steps) return std::nullopt;
  Evaluation out;
  out.t = t;
  out.epoch = (t + epoch - 1) / epoch;
  if (const EpochTally& tally = training.tally; tally.records != 0) {
    const auto records = static_cast<double>(tally.records);
    out.train_loss = tally.loss / records;
    if (training.train.classes != 0)
      out.train_accuracy = static_cast<double>(tally.correct) / records;
  }
  if (training.test != nullptr) {
    const Score held_out =
        score(training.network, training.model(), *training.test, training.threads);
    out.test_loss = held_out.loss;
    out.test_accuracy = held_out.accuracy;
  }
  out.rate = training.optimizer.rate();
  training.tally = {};
  return out;
}

bool is_checkpoint_due(const Training& training) {
  const std::uint64_t every = training.config.run.checkpoint_every;
  return every != 0 && training.mechanism.t() % every == 0;
}

}  // namespace

StepReport step(Training& training, run::Session& session,
                const std::function<void()>& write_checkpoint) {
  // Sample.
  const std::vector<std::uint64_t> batch = training.sampler.batch(training.mechanism.t());

  // Reserve: no gradient of a contribution is computed before its epoch is in the ledger and its
  // use on the disk.
  std::vector<std::uint32_t> classes;
  if (training.corpus != nullptr) {
    training.corpus->enter_epoch(training.mechanism.t());
    classes = training.corpus->reserve(training.mechanism.t(), batch);
  }

  // Gradients, clip: by each record's own route, if it has one.
  EpochTally tally = training.tally;
  const mechanism::Allocation allocation = training.mechanism.allocation();
  std::optional<StepResult> released;
  try {
    for (const Piece& piece : pieces_of(batch, training.config.privacy)) {
      compute_gradients(training, piece.records);
      add_to(tally, training.gradients);
      accumulate(training, piece.more,
                 training.corpus == nullptr
                     ? std::span<const std::uint32_t>()
                     : std::span(classes).subspan(piece.first, piece.records.size()));
    }
    // Noise, account: nothing is released before both are done.
    released.emplace(training.mechanism.release());
  } catch (const Error&) {
    training.mechanism.drop_microbatches();
    throw;
  }
  training.tally = tally;
  update(training, *released, allocation);

  // Append: the trace, and everything that must record the step before a checkpoint does.
  session.record(*released);
  training.mechanism.reuse(std::exchange(released->gradients, GradientSum(ModelLayout({}))));
  const std::optional<Evaluation> evaluation = evaluation_if_due(training);
  if (evaluation) session.record("evaluation", evaluation->to_cbor());

  // Checkpoint.
  if (is_checkpoint_due(training)) write_checkpoint();
  return {std::move(*released), evaluation};
}

}  // namespace discreet::training
