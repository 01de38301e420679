#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "discreet/base/error.h"
#include "discreet/training/step.h"

namespace discreet::training {
namespace {

// JSON holds no infinity: a loss that diverged is null.
cbor::Value number(const std::optional<double>& x) {
  return x && std::isfinite(*x) ? cbor::Value(*x) : nullptr;
}

constexpr const char* kOperator = "checkpoint";

}  // namespace

cbor::Value Evaluation::to_cbor() const {
  return cbor::map({{"t", t},
                    {"epoch", epoch},
                    {"train_loss", number(train_loss)},
                    {"train_accuracy", number(train_accuracy)},
                    {"test_loss", number(test_loss)},
                    {"test_accuracy", number(test_accuracy)},
                    {"rate", rate}});
}

std::vector<std::span<const float>> Training::model() const {
  std::vector<std::span<const float>> out;
  for (std::size_t i = 0; i < network.layout().size(); ++i) {
    const std::span<const float> average = optimizer.average(i);
    out.push_back(average.empty() ? network.tensor(i) : average);
  }
  return out;
}

Bytes Training::save() const {
  std::vector<cbor::Value> parameters;
  for (std::size_t i = 0; i < network.layout().size(); ++i) {
    const std::span<const float> values = network.tensor(i);
    Bytes bytes(values.size_bytes());
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    parameters.emplace_back(std::move(bytes));
  }
  return cbor::encode(cbor::map({{"parameters", cbor::array(std::move(parameters))},
                                 {"optimizer", optimizer.save()},
                                 {"records", tally.records},
                                 {"correct", tally.correct},
                                 {"loss", tally.loss}}));
}

void Training::restore(ByteView bytes) try {
  const cbor::Value saved = cbor::decode(bytes);
  const auto& parameters = saved.at("parameters").as_array();
  if (parameters.size() != network.layout().size())
    malformed(kOperator, "it belongs to another model");
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].as_bytes().size() != network.tensor(i).size_bytes())
      malformed(kOperator, "{} has the wrong size", network.layout().tensors()[i].name);
  const EpochTally next{saved.at("records").as_unsigned(), saved.at("correct").as_unsigned(),
                        saved.at("loss").as_float()};
  optimizer.restore(saved.at("optimizer").as_bytes());
  tally = next;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ByteView from = parameters[i].as_bytes();
    if (!from.empty()) std::memcpy(network.tensor(i).data(), from.data(), from.size());
  }
} catch (const Error& error) {
  if (error.code() == ErrorCode::kMalformed) throw;
  malformed(kOperator, "{}", error.sentence());
}

Score score(const Network& network, std::span<const std::span<const float>> model,
            const data::Dataset& data, int threads) {
  Network measured = network;
  for (std::size_t i = 0; i < model.size(); ++i)
    std::ranges::copy(model[i], measured.tensor(i).begin());
  EpochTally tally;
  constexpr std::size_t kRecords = 1024;
  for (std::size_t begin = 0; begin < data.rows; begin += kRecords) {
    const std::size_t n = std::min(kRecords, data.rows - begin);
    const auto x = std::span(data.x).subspan(begin * data.features, n * data.features);
    const Losses result = measured.losses(
        x,
        data.classes != 0 ? std::span(data.label).subspan(begin, n)
                          : std::span<const std::uint32_t>(),
        data.classes != 0 ? std::span<const float>() : std::span(data.target).subspan(begin, n),
        threads);
    tally.records += n;
    tally.correct += result.correct;
    for (const float loss : result.losses) tally.loss += static_cast<double>(loss);
  }
  const double records = static_cast<double>(std::max<std::uint64_t>(1, tally.records));
  Score out{tally.loss / records, std::nullopt};
  if (data.classes != 0) out.accuracy = static_cast<double>(tally.correct) / records;
  return out;
}

}  // namespace discreet::training
