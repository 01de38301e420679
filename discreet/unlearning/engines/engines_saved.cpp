// The bytes of the engines.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "discreet/unlearning/engines/erm_engine.h"
#include "discreet/unlearning/engines/exact_engine.h"
#include "discreet/unlearning/engines/stream_engine.h"
#include "discreet/unlearning/saved_impl.h"

namespace discreet::unlearning {

using cbor::Value;

Bytes ExactEngine::save(Records records) const {
  std::vector<cbor::Entry> state = {{"type", "unlearning/exact/1"},
                                    {"dimension", static_cast<std::uint64_t>(o_.dimension)},
                                    {"R", o_.R},
                                    {"Y", o_.Y},
                                    {"bits", o_.bits},
                                    {"lambda", o_.lambda},
                                    {"N", o_.N},
                                    {"n_max", o_.n_max},
                                    {"tolerance", o_.tolerance}};
  if (records == Records::kInside) {
    // Ascending by id: where a row lies in memory depends on what was deleted.
    const std::size_t width = o_.dimension + 1;
    std::vector<std::size_t> order(row_ids_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [this](std::size_t a, std::size_t b) { return row_ids_[a] < row_ids_[b]; });
    std::vector<RecordId> ids;
    std::vector<std::int32_t> rows;
    for (const std::size_t at : order) {
      ids.push_back(row_ids_[at]);
      rows.insert(rows.end(), &rows_[at * width], &rows_[at * width] + width);
    }
    state.push_back({"ids", packed(ids)});
    state.push_back({"rows", packed(rows)});
  }
  return cbor::encode(cbor::map(std::move(state)));
}

ExactEngine ExactEngine::restore(ByteView bytes) {
  return restored(bytes, "unlearning/exact/1", [](const Value& s) {
    ExactOptions o;
    o.dimension = s.at("dimension").as_unsigned();
    o.R = s.at("R").as_float();
    o.Y = s.at("Y").as_float();
    o.bits = static_cast<int>(std::min<std::uint64_t>(s.at("bits").as_unsigned(), 1000));
    o.lambda = s.at("lambda").as_float();
    o.N = s.at("N").as_unsigned();
    o.n_max = s.at("n_max").as_unsigned();
    o.tolerance = s.at("tolerance").as_float();
    ExactEngine engine(o);
    if (s.find("ids") == nullptr) return engine;
    const auto ids = unpacked<RecordId>(s.at("ids").as_bytes());
    const std::size_t width = o.dimension + 1;
    const auto rows = unpacked<std::int32_t>(s, "rows", ids.size() * width);
    std::vector<double> x(o.dimension);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      // A row of the grid is its own rounding, so inserting it again is exact, and checks it.
      for (std::size_t k = 0; k < o.dimension; ++k) x[k] = std::ldexp(rows[i * width + k], -o.bits);
      engine.insert(ids[i], x, std::ldexp(rows[i * width + o.dimension], -o.bits));
      if (!std::equal(&rows[i * width], &rows[i * width] + width, &engine.rows_[i * width])) {
        malformed_state("a record exceeds the bounds");
      }
    }
    return engine;
  });
}

Bytes ErmEngine::save(Records records) const {
  std::vector<cbor::Entry> state = {{"type", "unlearning/erm/1"},
                                    {"loss", static_cast<std::uint64_t>(o_.loss)},
                                    {"dimension", static_cast<std::uint64_t>(o_.dimension)},
                                    {"lambda", o_.lambda},
                                    {"N", o_.N},
                                    {"n_max", o_.n_max},
                                    {"R", o_.R},
                                    {"Y", o_.Y},
                                    {"tau", o_.tau},
                                    {"sigma", o_.sigma},
                                    {"eps_total", o_.eps_total},
                                    {"delta_total", o_.delta_total},
                                    {"accounting", static_cast<std::uint64_t>(o_.accounting)},
                                    {"guarantee", static_cast<std::uint64_t>(o_.guarantee)},
                                    {"budget", budget_.save()}};
  if (records == Records::kInside) {
    state.push_back({"ids", packed(row_ids_)});
    state.push_back({"rows", packed(rows_)});
    state.push_back({"labels", packed(labels_)});
    state.push_back({"w", packed(w_)});
  }
  return cbor::encode(cbor::map(std::move(state)));
}

ErmEngine ErmEngine::restore(ByteView bytes, NoiseSource noise) {
  return restored(bytes, "unlearning/erm/1", [&](const Value& s) {
    ErmOptions o;
    o.loss = code_of<Loss>(s.at("loss"), 1);
    o.dimension = s.at("dimension").as_unsigned();
    o.lambda = s.at("lambda").as_float();
    o.N = s.at("N").as_unsigned();
    o.n_max = s.at("n_max").as_unsigned();
    o.R = s.at("R").as_float();
    o.Y = s.at("Y").as_float();
    o.tau = s.at("tau").as_float();
    o.sigma = s.at("sigma").as_float();
    o.eps_total = s.at("eps_total").as_float();
    o.delta_total = s.at("delta_total").as_float();
    o.accounting = code_of<Accounting>(s.at("accounting"), 3);
    o.guarantee = code_of<Guarantee>(s.at("guarantee"), 3);
    ErmEngine engine(o, std::move(noise));
    const RhoBudget budget = RhoBudget::restore(s.at("budget"));
    if (budget.total() != engine.budget_.total()) {
      malformed_state("the total differs from that of the options");
    }
    engine.budget_ = budget;
    if (s.find("ids") == nullptr) return engine;
    const auto ids = unpacked<RecordId>(s.at("ids").as_bytes());
    const auto rows = unpacked<double>(s, "rows", ids.size() * o.dimension);
    const auto labels = unpacked<double>(s, "labels", ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      engine.insert(ids[i], std::span(rows).subspan(i * o.dimension, o.dimension), labels[i]);
    }
    const auto w = unpacked<double>(s, "w", o.dimension);
    for (const double v : w) {
      if (!std::isfinite(v)) malformed_state("a parameter is not finite");
    }
    engine.w_ = w;
    return engine;
  });
}

Bytes StreamEngine::save(Records records) const {
  std::vector<cbor::Entry> state = {{"type", "unlearning/stream/1"},
                                    {"release_sigma", release_sigma_},
                                    {"t", t_},
                                    {"rounding", rounding_},
                                    {"theta", packed(theta_)}};
  if (records == Records::kInside) {
    std::vector<RecordId> ids(ids_.begin(), ids_.end());
    std::sort(ids.begin(), ids.end());
    state.push_back({"ids", packed(ids)});
  }
  return cbor::encode(cbor::map(std::move(state)));
}

StreamEngine StreamEngine::restore(ByteView bytes, std::shared_ptr<PrivacyOdometer> odometer,
                                   NoiseSource noise) {
  return restored(bytes, "unlearning/stream/1", [&](const Value& s) {
    StreamEngine engine(std::move(odometer), std::move(noise), s.at("release_sigma").as_float());
    engine.t_ = s.at("t").as_unsigned();
    engine.rounding_ = s.at("rounding").as_float();
    engine.theta_ = unpacked<double>(s, "theta", engine.k_.dimension);
    for (const double v : engine.theta_) {
      if (!std::isfinite(v)) malformed_state("a parameter is not finite");
    }
    if (!(engine.rounding_ >= 0) || !std::isfinite(engine.rounding_)) {
      malformed_state("the bound of rounding errors is not a number");
    }
    if (const Value* ids = s.find("ids")) {
      for (const RecordId id : unpacked<RecordId>(ids->as_bytes())) engine.ids_.insert(id);
    }
    return engine;
  });
}

}  // namespace discreet::unlearning
