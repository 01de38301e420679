#include "discreet/unlearning/service/learner_impl.h"

#include <cmath>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/unlearning/records_impl.h"
#include "discreet/unlearning/require_impl.h"
#include "discreet/unlearning/saved_impl.h"

namespace discreet::unlearning {
namespace {

// Null for a stream.
Engine* engine_of(Learner& learner) {
  if (auto* exact = std::get_if<ExactEngine>(&learner)) return exact;
  return std::get_if<ErmEngine>(&learner);
}

const char* engine_name(const Learner& learner) {
  constexpr const char* names[] = {"exact", "erm", "stream"};
  return names[learner.index()];
}

std::string guarantee_of(const Learner& learner) {
  if (std::holds_alternative<ExactEngine>(learner)) return "exact";
  if (const auto* erm = std::get_if<ErmEngine>(&learner)) {
    return std::string(to_string(erm->options().guarantee));
  }
  return std::string(to_string(std::get<MemoryPair>(learner).odometer().guarantee()));
}

// Rounded up: a recorded bound is never smaller than the configured one.
std::uint64_t scaled_up(const char* name, double value, double scale) {
  const double product = value * scale;
  const double scaled =
      std::ceil(product) +
      (std::fma(value, scale, -product) > 0 && product == std::ceil(product) ? 1 : 0);
  if (!(scaled < 0x1p63)) refuse("unlearn", name, value, "a number that a receipt can represent");
  return static_cast<std::uint64_t>(scaled);
}

// Which engine's state it is.
std::string type_of(ByteView state) {
  try {
    return std::string(cbor::decode(state).at("type").as_text());
  } catch (const Error& error) {
    malformed_state(error.sentence());
  }
}

}  // namespace

Bytes saved(const Learner& learner) {
  return std::visit([](const auto& l) { return l.save(Records::kLeftOut); }, learner);
}

Learner restored_learner(ByteView state, NoiseSource noise) {
  const std::string type = type_of(state);
  if (type == "unlearning/exact/1") return ExactEngine::restore(state);
  if (type == "unlearning/erm/1") return ErmEngine::restore(state, std::move(noise));
  return MemoryPair::restore(state, std::move(noise));
}

std::size_t dimension_of(const Learner& learner) {
  if (const auto* pair = std::get_if<MemoryPair>(&learner)) return pair->theta().size();
  if (const auto* exact = std::get_if<ExactEngine>(&learner)) return exact->dimension();
  return std::get<ErmEngine>(learner).dimension();
}

std::uint64_t room_of(const Learner& learner) {
  if (const auto* exact = std::get_if<ExactEngine>(&learner))
    return exact->options().n_max - exact->live();
  if (const auto* erm = std::get_if<ErmEngine>(&learner)) return erm->options().n_max - erm->live();
  return kCountLimit;
}

double norm_bound(const Learner& learner) {
  if (const auto* exact = std::get_if<ExactEngine>(&learner)) return exact->options().R;
  if (const auto* erm = std::get_if<ErmEngine>(&learner)) return erm->options().R;
  return std::get<MemoryPair>(learner).odometer().options().enforced.R;
}

double label_bound(const Learner& learner) {
  if (const auto* exact = std::get_if<ExactEngine>(&learner)) return exact->options().Y;
  if (const auto* erm = std::get_if<ErmEngine>(&learner)) return erm->options().Y;
  return std::get<MemoryPair>(learner).odometer().options().enforced.Y;
}

std::vector<double> bounded(const Learner& learner, std::span<const double> z) {
  if (const auto* exact = std::get_if<ExactEngine>(&learner)) return exact->rounded(z);
  const auto* pair = std::get_if<MemoryPair>(&learner);
  if (pair && !pair->odometer().certified()) return {z.begin(), z.end()};
  return within(z, norm_bound(learner));
}

void require_fits(const Learner& learner, std::span<const double> x, double y) {
  require_record("insert", dimension_of(learner), x, y);
  if (const auto* erm = std::get_if<ErmEngine>(&learner)) {
    label_within("insert", erm->options().loss, y, erm->options().Y);
  } else if (const auto* pair = std::get_if<MemoryPair>(&learner)) {
    label_within("insert", pair->loss(), y, INFINITY);
  }
}

void add_record(Learner& learner, RecordId id, std::span<const double> x, double y,
                std::uint64_t calibration) {
  if (Engine* engine = engine_of(learner)) return engine->insert(id, x, y);
  auto& pair = std::get<MemoryPair>(learner);
  if (pair.phase() == Phase::kCalibration) {
    pair.calibrate_step(x, y);
    if (pair.inserts_seen() >= calibration) {
      pair.finalize_calibration(pair.odometer().options().gamma_learn);
    }
  } else {
    pair.insert(x, y);
  }
  if (pair.phase() == Phase::kInterleaving && pair.odometer().status() == "not finalized") {
    pair.odometer().finalize_with(pair.stats(), pair.odometer().options().T, pair.inserts_seen());
  }
}

void put_back(Learner& learner, RecordId id, std::span<const double> x, double y) {
  if (Engine* engine = engine_of(learner)) return engine->insert(id, x, y);
  std::get<MemoryPair>(learner).adopt(x, y);
}

bool remove_records(Learner& learner, std::span<const RecordId> ids,
                    std::span<const std::vector<double>> rows,
                    const std::function<NoiseSource(RecordId)>& noise) {
  if (Engine* engine = engine_of(learner)) {
    engine->erase(ids);
    return true;
  }
  auto& pair = std::get<MemoryPair>(learner);
  if (pair.phase() != Phase::kInterleaving || !pair.odometer().ready_to_delete() ||
      pair.odometer().remaining() < ids.size()) {
    return false;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    pair.use_noise(noise(ids[i]));
    pair.erase(std::span(rows[i]).first(rows[i].size() - 1), rows[i].back());
  }
  return true;
}

Publication publication(Learner& learner) {
  if (Engine* engine = engine_of(learner)) return {engine->publish(), true};
  const auto& pair = std::get<MemoryPair>(learner);
  const std::string who(to_string(pair.odometer().guarantee()));
  return {Release{std::vector<double>(pair.theta().begin(), pair.theta().end()), 0, 0,
                  who + (pair.odometer().certified()
                             ? ": state after the delete; requests fixed in advance; earlier "
                               "releases are not covered"
                             : "")},
          pair.can_predict()};
}

ledger::Deletion terms_of(const Learner& learner) {
  ledger::Deletion entry;
  entry.engine = engine_name(learner);
  double epsilon = 0, delta = 0, residual = 0;
  if (const auto* exact = std::get_if<ExactEngine>(&learner)) {
    entry.promise = ledger::DeletionPromise::kExact;
    residual = exact->options().tolerance;
  } else if (const auto* erm = std::get_if<ErmEngine>(&learner)) {
    const ErmOptions& o = erm->options();
    entry.promise = static_cast<ledger::DeletionPromise>(o.guarantee);
    epsilon = o.eps_total;
    delta = o.delta_total;
    residual = o.tau / o.lambda;
  } else {
    const PrivacyOdometer& odometer = std::get<MemoryPair>(learner).odometer();
    entry.promise = static_cast<ledger::DeletionPromise>(odometer.guarantee());
    epsilon = odometer.options().eps_total;
    delta = odometer.options().delta_total;
  }
  entry.epsilon = scaled_up("eps_total", epsilon, ledger::kMicro);
  entry.delta = scaled_up("delta_total", delta, ledger::kAtto);
  entry.residual = scaled_up("the residual bound", residual, ledger::kAtto);
  return entry;
}
static_assert(static_cast<int>(ledger::DeletionPromise::kNotCertified) ==
                  static_cast<int>(Guarantee::kNotCertified) &&
              static_cast<int>(ledger::DeletionPromise::kTranscript) ==
                  static_cast<int>(Guarantee::kTranscript));

void describe(const Learner& learner, ServiceStatus& out) {
  out.engine = engine_name(learner);
  out.guarantee = guarantee_of(learner);
  out.live = std::visit([](const auto& l) { return l.live(); }, learner);
  if (const auto* erm = std::get_if<ErmEngine>(&learner)) {
    out.releases_left = erm->releases_left();
    out.eps_total = erm->options().eps_total;
    out.delta_total = erm->options().delta_total;
    out.eps_spent = eps_of(erm->options().accounting, erm->budget().spent(), out.delta_total);
  } else if (const auto* pair = std::get_if<MemoryPair>(&learner)) {
    const PrivacyOdometer& odometer = pair->odometer();
    out.deletes_left = odometer.ready_to_delete() ? odometer.remaining() : 0;
    out.eps_total = odometer.options().eps_total;
    out.delta_total = odometer.options().delta_total;
    out.eps_spent = odometer.eps_spent();
    out.warnings = odometer.warnings();
    out.warnings.insert(out.warnings.end(), pair->stats().warnings.begin(),
                        pair->stats().warnings.end());
    out.metrics = pair->metrics();
  }
}

}  // namespace discreet::unlearning
