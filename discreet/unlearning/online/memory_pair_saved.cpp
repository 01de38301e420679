// The bytes of the memory pair, of its calibrator and its curvature pairs.
#include "discreet/unlearning/online/memory_pair.h"
#include "discreet/unlearning/saved_impl.h"

namespace discreet::unlearning {

using cbor::Value;

cbor::Value Lbfgs::save() const {
  std::vector<Value> pairs;
  for (const Pair& pair : pairs_) {
    pairs.push_back(cbor::array({packed(pair.s), packed(pair.y), pair.sy}));
  }
  return cbor::array(std::move(pairs));
}

void Lbfgs::restore(const cbor::Value& value) {
  std::deque<Pair> pairs;
  for (const Value& item : value.as_array()) {
    const auto& parts = item.as_array();
    if (parts.size() != 3 || pairs.size() == memory_)
      malformed_state("the number of pairs differs");
    Pair pair{unpacked<double>(parts[0].as_bytes()), unpacked<double>(parts[1].as_bytes()),
              parts[2].as_float()};
    if (pair.s.size() != dimension_ || pair.y.size() != dimension_ || !(pair.sy > 0)) {
      malformed_state("a pair has the wrong length or the wrong curvature");
    }
    pairs.push_back(std::move(pair));
  }
  pairs_ = std::move(pairs);
}

cbor::Value Calibrator::save() const {
  std::vector<double> thetas;
  for (const auto& theta : thetas_) thetas.insert(thetas.end(), theta.begin(), theta.end());
  return cbor::array({options_.quantile, options_.D_cap ? Value(*options_.D_cap) : Value(),
                      packed(grad_norms_), packed(thetas)});
}

Calibrator Calibrator::restore(const cbor::Value& value) {
  const auto& parts = value.as_array();
  if (parts.size() != 4) malformed_state("a calibrator must have four parts");
  CalibratorOptions options{parts[0].as_float(), std::nullopt};
  if (!parts[1].is_null()) options.D_cap = parts[1].as_float();
  Calibrator calibrator(options);
  calibrator.grad_norms_ = unpacked<double>(parts[2].as_bytes());
  const auto thetas = unpacked<double>(parts[3].as_bytes());
  const std::size_t count = calibrator.grad_norms_.size();
  if (count == 0 ? !thetas.empty() : thetas.empty() || thetas.size() % count != 0) {
    malformed_state("the numbers of parameters and gradients differ");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t d = thetas.size() / count;
    calibrator.thetas_.emplace_back(thetas.begin() + static_cast<std::ptrdiff_t>(i * d),
                                    thetas.begin() + static_cast<std::ptrdiff_t>((i + 1) * d));
  }
  return calibrator;
}

Bytes MemoryPair::save(Records records) const {
  std::vector<Value> warnings(stats_.warnings.begin(), stats_.warnings.end());
  const Constants& k = stats_.constants;
  std::vector<cbor::Entry> state = {
      {"type", "unlearning/memory_pair/1"},
      {"dimension", static_cast<std::uint64_t>(theta_.size())},
      {"odometer", odometer_->save()},
      {"calibrator", calibrator_.save()},
      {"loss", static_cast<std::uint64_t>(loss_)},
      {"stream", stream_ ? Value(stream_->save(records)) : Value()},
      {"lbfgs", lbfgs_.save()},
      {"theta", packed(theta_)},
      {"comparator", packed(comparator_)},
      {"phase", static_cast<std::uint64_t>(phase_)},
      {"stats", cbor::array({k.G, k.D, k.c, k.C, stats_.N_star, cbor::array(std::move(warnings))})},
      {"N_star", N_star_ ? Value(*N_star_) : Value()},
      {"ready_to_predict", ready_to_predict_},
      {"events_seen", events_seen_},
      {"inserts_seen", inserts_seen_},
      {"deletes_seen", deletes_seen_},
      {"cumulative_regret", cumulative_regret_},
      {"next_id", next_id_}};
  if (gamma_learn_) state.push_back({"gamma_learn", *gamma_learn_});
  if (records == Records::kInside) {
    std::vector<cbor::Entry> live;
    for (const auto& [key, ids] : live_) live.push_back({bytes_of(key), packed(ids)});
    state.push_back({"live", cbor::map(std::move(live))});
  }
  return cbor::encode(cbor::map(std::move(state)));
}

MemoryPair MemoryPair::restore(ByteView bytes, NoiseSource noise) {
  return restored(bytes, "unlearning/memory_pair/1", [&](const Value& s) {
    auto odometer =
        std::make_shared<PrivacyOdometer>(PrivacyOdometer::restore(s.at("odometer").as_bytes()));
    const std::size_t d = s.at("dimension").as_unsigned();
    // The constructor takes an odometer in its initial state; the saved one follows.
    MemoryPair pair(d, std::make_shared<PrivacyOdometer>(odometer->options()),
                    Calibrator::restore(s.at("calibrator")), code_of<Loss>(s.at("loss"), 1),
                    std::move(noise));
    pair.odometer_ = odometer;
    if (pair.stream_.has_value() == s.at("stream").is_null()) {
      malformed_state("the learner is of another kind");
    }
    if (pair.stream_) {
      pair.stream_.emplace(
          StreamEngine::restore(s.at("stream").as_bytes(), odometer, pair.noise_.fork("stream")));
    }
    pair.lbfgs_.restore(s.at("lbfgs"));
    pair.theta_ = unpacked<double>(s, "theta", d);
    pair.comparator_ = unpacked<double>(s, "comparator", d);
    const std::uint64_t phase = s.at("phase").as_unsigned();
    if (phase < 1 || phase > 3) malformed_state("the phase is unknown");
    pair.phase_ = static_cast<Phase>(phase);
    const auto& stats = s.at("stats").as_array();
    if (stats.size() != 6) malformed_state("the statistics differ");
    pair.stats_.constants = {stats[0].as_float(), stats[1].as_float(), stats[2].as_float(),
                             stats[3].as_float()};
    pair.stats_.N_star = stats[4].as_unsigned();
    for (const Value& warning : stats[5].as_array()) {
      pair.stats_.warnings.emplace_back(warning.as_text());
    }
    if (!s.at("N_star").is_null()) pair.N_star_ = s.at("N_star").as_unsigned();
    // Earlier versions did not keep it.
    if (const Value* gamma = s.find("gamma_learn")) pair.gamma_learn_ = gamma->as_float();
    pair.ready_to_predict_ = s.at("ready_to_predict").as_bool();
    pair.events_seen_ = s.at("events_seen").as_unsigned();
    pair.inserts_seen_ = s.at("inserts_seen").as_unsigned();
    pair.deletes_seen_ = s.at("deletes_seen").as_unsigned();
    pair.cumulative_regret_ = s.at("cumulative_regret").as_float();
    pair.next_id_ = s.at("next_id").as_unsigned();
    if (const Value* live = s.find("live")) {
      for (const auto& [key, ids] : live->as_map()) {
        const ByteView name = key.as_bytes();
        pair.live_.emplace(Key(name.begin(), name.end()), unpacked<RecordId>(ids.as_bytes()));
      }
    }
    return pair;
  });
}

void MemoryPair::adopt(std::span<const double> x, double y) {
  const RecordId id = adopted_++;
  live_[key_of(x, y)].push_back(id);
  if (stream_) stream_->adopt(id);
}

}  // namespace discreet::unlearning
