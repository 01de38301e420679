#include "discreet/training/held_out.h"

#include <algorithm>
#include <cmath>

namespace discreet::training {
namespace {

constexpr std::size_t kRecords = 1024;

std::optional<double> share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

cbor::Value or_null(const std::optional<double>& x) {
  return x && std::isfinite(*x) ? cbor::Value(*x) : nullptr;
}

std::vector<float> outputs_of(const Network& network, std::span<const std::span<const float>> model,
                              const data::Dataset& data, int threads) {
  Network measured = network;
  for (std::size_t i = 0; i < model.size(); ++i)
    std::ranges::copy(model[i], measured.tensor(i).begin());
  std::vector<float> out;
  for (std::size_t begin = 0; begin < data.rows; begin += kRecords) {
    const std::size_t n = std::min(kRecords, data.rows - begin);
    const std::vector<float> some = measured.predict(
        std::span(data.x).subspan(begin * data.features, n * data.features), n, threads);
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

void count_classes(HeldOut& out, const data::Dataset& data, std::span<const float> outputs) {
  for (std::size_t k = 0; k < data.classes; ++k)
    out.classes.push_back({k < data.class_names.size() ? data.class_names[k] : std::to_string(k)});
  for (std::size_t row = 0; row < data.rows; ++row) {
    const auto own = outputs.subspan(row * data.classes, data.classes);
    const auto best = static_cast<std::size_t>(std::ranges::max_element(own) - own.begin());
    ++out.classes[data.label[row]].records;
    ++out.classes[best].predicted;
    if (best == data.label[row]) ++out.classes[best].correct;
  }
}

void measure_errors(HeldOut& out, const data::Dataset& data, std::span<const float> outputs,
                    std::span<const double> bounds) {
  const auto n = static_cast<double>(data.rows);
  double mean = 0, error = 0, variance = 0;
  for (const float target : data.target) mean += static_cast<double>(target) / n;
  for (std::size_t row = 0; row < data.rows; ++row) {
    const auto target = static_cast<double>(data.target[row]);
    error += std::pow(static_cast<double>(outputs[row]) - target, 2) / n;
    variance += std::pow(target - mean, 2) / n;
  }
  const double unit = bounds.size() == 2 ? (bounds[1] - bounds[0]) / 2 : 1;
  out.rmse = unit * std::sqrt(error);
  if (variance > 0) out.r2 = 1 - error / variance;
}

}  // namespace

std::optional<double> HeldOut::Class::recall() const { return share(correct, records); }
std::optional<double> HeldOut::Class::precision() const { return share(correct, predicted); }

const HeldOut::Class* HeldOut::majority() const {
  const auto most = std::ranges::max_element(classes, {}, &Class::records);
  return most == classes.end() || most->records == 0 ? nullptr : &*most;
}

std::optional<double> HeldOut::baseline() const {
  const Class* most = majority();
  return most == nullptr ? std::nullopt : share(most->records, records);
}

cbor::Value HeldOut::to_cbor() const {
  std::vector<cbor::Value> each;
  for (const Class& own : classes)
    each.push_back(cbor::map({{"class", own.name},
                              {"records", own.records},
                              {"recall", or_null(own.recall())},
                              {"precision", or_null(own.precision())}}));
  return cbor::map({{"records", records},
                    {"majority_class", majority() ? cbor::Value(majority()->name) : nullptr},
                    {"majority_accuracy", or_null(baseline())},
                    {"classes", cbor::array(std::move(each))},
                    {"rmse", or_null(rmse)},
                    {"r2", or_null(r2)}});
}

HeldOut measure(const Network& network, std::span<const std::span<const float>> model,
                const data::Dataset& data, std::span<const double> label_bounds, int threads) {
  HeldOut out;
  out.records = data.rows;
  if (data.rows == 0) return out;
  const std::vector<float> outputs = outputs_of(network, model, data, threads);
  if (data.classes != 0)
    count_classes(out, data, outputs);
  else
    measure_errors(out, data, outputs, label_bounds);
  return out;
}

}  // namespace discreet::training
