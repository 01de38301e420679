#include "discreet/training/optimizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/parallel.h"

namespace discreet::training {
namespace {

void require(bool good, const char* option, double value, const char* range) {
  if (good) return;
  invalid_config("optimizer", "optimizer.{} is {}; it must be {}", option, value, range);
}

template <class T>
Bytes packed(std::span<const T> values) {
  Bytes out(values.size_bytes());
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
void unpack(const cbor::Value& value, std::span<T> out) {
  const ByteView bytes = value.as_bytes();
  if (bytes.size() != out.size_bytes())
    malformed("optimizer", "the saved state belongs to another model");
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
}

double power(double base, std::uint64_t exponent) {
  double out = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) out *= base;
  return out;
}

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options, const ModelLayout& layout)
    : options_(options), first_(layout), second_(layout), variance_(layout.size()) {
  const auto& o = options_;
  require(std::isfinite(o.rate) && o.rate > 0, "rate", o.rate, "finite and positive");
  require(o.momentum >= 0 && o.momentum < 1, "momentum", o.momentum, "in [0, 1)");
  require(o.beta1 >= 0 && o.beta1 < 1, "beta1", o.beta1, "in [0, 1)");
  require(o.beta2 >= 0 && o.beta2 < 1, "beta2", o.beta2, "in [0, 1)");
  require(std::isfinite(o.floor) && o.floor > 0, "floor", o.floor, "finite and positive");
  require(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "weight_decay", o.weight_decay,
          "finite and not negative");
  require(!o.average || (*o.average >= 0 && *o.average < 1), "average", o.average.value_or(0),
          "in [0, 1)");
  require(o.schedule == RateSchedule::kConstant || o.steps > 0, "steps",
          static_cast<double>(o.steps), "the length of the run, for a decreasing rate");
}

double Optimizer::rate() const {
  if (options_.schedule == RateSchedule::kConstant) return options_.rate;
  const double part = std::min(1.0, static_cast<double>(t_) / static_cast<double>(options_.steps));
  if (options_.schedule == RateSchedule::kLinear) return options_.rate * (1 - part);
  return options_.rate * (1 + numerics::cos(std::numbers::pi * part)) / 2;
}

void Optimizer::step(const GradientSum& gradient, std::span<const double> noise_variance,
                     std::span<const std::span<float>> parameters, int threads) {
  const std::size_t tensors = first_.tensors();
  bool fits = gradient.tensors() == tensors && parameters.size() == tensors &&
              noise_variance.size() == tensors;
  for (std::size_t i = 0; fits && i < tensors; ++i)
    fits = gradient.tensor(i).size() == first_.tensor(i).size() &&
           (first_.tensor(i).empty() || parameters[i].size() == first_.tensor(i).size());
  if (!fits)
    invalid_input("optimizer", "gradients, noise variances or parameters belong to another model");
  const double rate_now = rate();
  ++t_;
  if (options_.average && average_.empty()) {
    average_.resize(tensors);
    for (std::size_t i = 0; i < tensors; ++i)
      if (!first_.tensor(i).empty()) average_[i].assign(parameters[i].begin(), parameters[i].end());
  }
  for (std::size_t i = 0; i < tensors; ++i) {
    variance_[i] = options_.beta2 * variance_[i] + (1 - options_.beta2) * noise_variance[i];
    const auto g = gradient.tensor(i);
    numerics::parallel_for(g.size(), threads, [&](std::size_t begin, std::size_t end) {
      if (options_.kind == OptimizerKind::kAdam)
        descend_adam(i, begin, end, g, rate_now, parameters[i]);
      else
        descend(i, begin, end, g, rate_now, parameters[i]);
      if (!options_.average) return;
      const double keep = *options_.average;
      float* average = average_[i].data();
      for (std::size_t k = begin; k < end; ++k)
        average[k] = static_cast<float>(keep * average[k] + (1 - keep) * parameters[i][k]);
    });
  }
}

void Optimizer::descend(std::size_t i, std::size_t begin, std::size_t end,
                        std::span<const double> g, double rate, std::span<float> w) {
  const double momentum = options_.momentum, decay = options_.weight_decay;
  const double* from = g.data();
  double* m = first_.tensor(i).data();
  float* to = w.data();
  for (std::size_t k = begin; k < end; ++k) {
    m[k] = momentum * m[k] + from[k];
    const double before = to[k];
    to[k] = static_cast<float>(before - rate * (m[k] + decay * before));
  }
}

void Optimizer::descend_adam(std::size_t i, std::size_t begin, std::size_t end,
                             std::span<const double> g, double rate, std::span<float> w) {
  const double beta1 = options_.beta1, beta2 = options_.beta2, decay = options_.weight_decay;
  const double correct1 = 1 - power(beta1, t_), correct2 = 1 - power(beta2, t_);
  const double variance = variance_[i];
  const double least = std::max(options_.floor * options_.floor,
                                options_.floor_is_noise ? variance / correct2 : 0.0);
  const double* from = g.data();
  double *m = first_.tensor(i).data(), *v = second_.tensor(i).data();
  float* to = w.data();
  for (std::size_t k = begin; k < end; ++k) {
    m[k] = beta1 * m[k] + (1 - beta1) * from[k];
    v[k] = beta2 * v[k] + (1 - beta2) * from[k] * from[k];
    const double square = std::max((v[k] - variance) / correct2, least);
    const double before = to[k];
    to[k] =
        static_cast<float>(before - rate * (m[k] / correct1 / std::sqrt(square) + decay * before));
  }
}

std::span<const float> Optimizer::average(std::size_t i) const {
  return average_.empty() ? std::span<const float>() : std::span<const float>(average_.at(i));
}

Bytes Optimizer::save() const {
  std::vector<cbor::Value> averages;
  for (const auto& tensor : average_) averages.emplace_back(packed<float>(tensor));
  return cbor::encode(cbor::map({{"t", t_},
                                 {"first", packed<double>(first_.values())},
                                 {"second", packed<double>(second_.values())},
                                 {"variance", packed<double>(variance_)},
                                 {"average", cbor::array(std::move(averages))}}));
}

void Optimizer::restore(ByteView bytes) {
  Optimizer next = *this;
  try {
    const cbor::Value saved = cbor::decode(bytes);
    next.t_ = saved.at("t").as_unsigned();
    unpack<double>(saved.at("first"), next.first_.values());
    unpack<double>(saved.at("second"), next.second_.values());
    unpack<double>(saved.at("variance"), next.variance_);
    const auto& averages = saved.at("average").as_array();
    next.average_.assign(averages.empty() ? 0 : first_.tensors(), {});
    if (!averages.empty() && averages.size() != first_.tensors())
      malformed("optimizer", "the saved averages belong to another model");
    for (std::size_t i = 0; i < next.average_.size(); ++i) {
      next.average_[i].resize(first_.tensor(i).size());
      unpack<float>(averages[i], next.average_[i]);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed("optimizer", "{}", error.sentence());
  }
  *this = std::move(next);
}

}  // namespace discreet::training
