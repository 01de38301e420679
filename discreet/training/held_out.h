#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/data/dataset.h"
#include "discreet/training/network.h"

namespace discreet::training {

// How a model does on held-out records. Measured without noise, so everything here is confidential;
// held-out records have no guarantee.
struct HeldOut {
  struct Class {
    std::string name;
    std::uint64_t records = 0;                // whose label it is
    std::uint64_t predicted = 0;              // for which the model says it
    std::uint64_t correct = 0;                // both
    std::optional<double> recall() const;     // correct / records; empty without records
    std::optional<double> precision() const;  // correct / predicted; empty if never predicted
  };
  std::uint64_t records = 0;
  std::vector<Class> classes;  // empty if the label is a number
  // The root mean squared error in the unit of the label, and the fraction of the label's variance
  // that the model explains: 1 - mean squared error / variance. Labels outside label_bounds count
  // as the bound. r2 is empty if all labels are equal.
  std::optional<double> rmse, r2;

  // The class with the most records, the first of several; null without classes or records.
  const Class* majority() const;
  // The accuracy of always answering the majority class.
  std::optional<double> baseline() const;
  cbor::Value to_cbor() const;
};

// model: in the order of the network's tensors. label_bounds: of a label that is a number, which
// was learned in [-1, 1]; empty: it is in that unit.
HeldOut measure(const Network& network, std::span<const std::span<const float>> model,
                const data::Dataset& data, std::span<const double> label_bounds, int threads);

}  // namespace discreet::training
