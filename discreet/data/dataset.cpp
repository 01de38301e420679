#include "discreet/data/dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/data/dataset_impl.h"
#include "discreet/numerics/parallel.h"

namespace discreet::data {

void check_bounds(const NumericColumn& bounds, const std::string& what) {
  if (std::isfinite(bounds.lower) && std::isfinite(bounds.upper) && bounds.lower < bounds.upper &&
      std::isfinite(bounds.upper - bounds.lower))
    return;
  invalid_config("data",
                 "{} has bounds [{}, {}]; declare a lower and a larger upper bound, from prior "
                 "knowledge about the quantity, not from the data",
                 what, bounds.lower, bounds.upper);
}

float scaled(double value, const NumericColumn& bounds) {
  const double inside = std::clamp(value, bounds.lower, bounds.upper);
  return static_cast<float>(2 * ((inside - bounds.lower) / (bounds.upper - bounds.lower)) - 1);
}

void name_features(Dataset& data) {
  for (std::size_t k = 0; k < data.features; ++k)
    data.feature_names.push_back(fmt::format("x{}", k));
  for (std::size_t k = 0; k < data.classes; ++k) data.class_names.push_back(fmt::format("{}", k));
}

Digest digest_of(const Dataset& data) {
  Sha256 hash;
  std::vector<cbor::Value> features(data.feature_names.begin(), data.feature_names.end());
  std::vector<cbor::Value> classes(data.class_names.begin(), data.class_names.end());
  hash.update(cbor::encode(
      cbor::array({"discreet-dataset-1", data.rows, data.features, data.classes,
                   cbor::array(std::move(features)), cbor::array(std::move(classes))})));
  const auto add = [&](const auto& values) {
    hash.update(
        {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(values[0])});
  };
  add(data.x);
  add(data.label);
  add(data.target);
  return hash.finish();
}

void gather(std::span<const float> x, std::size_t features, std::span<const std::uint64_t> records,
            int threads, std::vector<float>& out) {
  out.resize(records.size() * features);
  numerics::parallel_items(records.size(), threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      std::copy_n(x.data() + records[i] * features, features, out.data() + i * features);
  });
}

}  // namespace discreet::data
