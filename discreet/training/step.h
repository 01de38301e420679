#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "discreet/data/dataset.h"
#include "discreet/mechanism/sample/sample.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/run/session.h"
#include "discreet/training/corpus.h"
#include "discreet/training/network.h"
#include "discreet/training/optimizer.h"

namespace discreet::training {

// Losses of the batches of the current epoch; confidential.
struct EpochTally {
  std::uint64_t records = 0;
  std::uint64_t correct = 0;
  double loss = 0;  // sum over the records, in order
};

// An evaluation of the model, once per epoch: the line `evaluation` of the trace. Confidential: it
// contains means over the realised batches, and held-out records have no guarantee.
struct Evaluation {
  std::uint64_t t = 0;                   // completed steps
  std::uint64_t epoch = 0;               // started epochs
  std::optional<double> train_loss;      // of the batches of the epoch; empty if all were empty
  std::optional<double> train_accuracy;  // also empty for models that predict numbers
  std::optional<double> test_loss;       // of all held-out records; empty without them
  std::optional<double> test_accuracy;
  double rate = 0;  // of the next step
  cbor::Value to_cbor() const;
};

// Everything that a step reads or changes. The caller must ensure the members are consistent.
struct Training {
  const Config& config;
  const data::Dataset& train;
  const data::Dataset* test;  // null without held-out records
  Network network;
  Optimizer optimizer;
  mechanism::Sampler sampler;
  mechanism::Mechanism mechanism;
  EpochTally tally;
  int threads = 1;
  std::optional<std::uint64_t> planned_steps;  // empty: until the budget is reached
  Corpus* corpus = nullptr;                    // null: records are not contributions
  BackwardResult gradients = {};  // of the last microbatch; the next one reuses its memory

  // The released model: the average of iterates if there is one, otherwise the weights.
  std::vector<std::span<const float>> model() const;
  // The model, optimizer and tally as deterministic CBOR; restore throws kMalformed, nothing
  // changed.
  Bytes save() const;
  void restore(ByteView bytes);
};

struct StepReport {
  mechanism::StepResult released;        // without its gradients, which are applied to the weights
  std::optional<Evaluation> evaluation;  // at the end of an epoch and of the run
};

// One optimizer step: sample, gradients, clip, noise, account, update, trace, checkpoint. Without
// privacy (enabled: false) the same without clipping and noise.
//   checkpoint: writes one; called if it is due after this step.
// Throws as the mechanism does, with weights, optimizer, tally and mechanism unchanged; and as
// RunFiles does, with the step completed.
StepReport step(Training& training, run::Session& session,
                const std::function<void()>& write_checkpoint);

// Mean loss and accuracy of a model of this shape over a data set; the bits do not depend on
// threads.
struct Score {
  double loss = 0;
  std::optional<double> accuracy;
};
Score score(const Network& network, std::span<const std::span<const float>> model,
            const data::Dataset& data, int threads);

}  // namespace discreet::training
