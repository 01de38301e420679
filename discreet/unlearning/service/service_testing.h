#pragma once

#include <cmath>

#include "discreet/ledger/ledger_testing.h"
#include "discreet/unlearning/service/service.h"

// Small services with synthetic records, the same in every run.
namespace discreet::unlearning::testing {

using ledger::testing::Folder;
using ledger::testing::kToday;

inline ledger::Ledger new_ledger(const std::filesystem::path& path) {
  return ledger::Ledger::create(path, ledger::testing::header("rdp"), bytes_of("policy"),
                                ledger::testing::ledger_key());
}
inline ledger::Ledger open_ledger(const std::filesystem::path& path) {
  return ledger::Ledger::open(path, ledger::testing::ledger_key());
}

inline Row row(std::uint64_t i, std::size_t dimension = 3) {
  Row r;
  r.subject = "subject-" + std::to_string(i);
  r.x.resize(dimension);
  NoiseSource::insecure(i).add(1 / std::sqrt(double(dimension)), r.x);
  r.y = r.x[0] - r.x[1] > 0 ? 1 : -1;
  return r;
}
inline std::vector<Row> rows(std::uint64_t begin, std::uint64_t end, std::size_t dimension = 3) {
  std::vector<Row> out;
  for (std::uint64_t i = begin; i < end; ++i) out.push_back(row(i, dimension));
  return out;
}

inline ExactOptions exact_options(std::size_t dimension = 3) {
  ExactOptions o;
  o.dimension = dimension;
  o.lambda = 1e-2;
  o.N = 1000;
  o.n_max = 100'000;
  return o;
}

inline ErmOptions erm_options(Guarantee guarantee = Guarantee::kPerRecord) {
  ErmOptions o;
  o.dimension = 3;
  o.lambda = 1e-2;
  o.N = 1000;
  o.n_max = 100'000;
  o.guarantee = guarantee;
  return o;
}

// Allows a few deletes, then retrains.
inline StreamOptions stream_options(Accounting accounting = Accounting::kZcdp,
                                    double gamma_priv = 0.35) {
  StreamOptions o;
  o.odometer.accounting = accounting;
  o.odometer.guarantee = Guarantee::kSetLevel;
  o.odometer.gamma_learn = 0.5;
  o.odometer.gamma_priv = gamma_priv;
  o.odometer.T = 2000;
  o.odometer.enforced.dimension = 3;
  o.odometer.enforced.D = 2;
  o.loss = Loss::kLogistic;
  o.dimension = 3;
  o.calibration = 20;
  return o;
}

// The same noise for the same event, for comparing runs; it protects nobody.
inline Service::Noise repeatable_noise() {
  return [](std::string_view event) { return NoiseSource::insecure(7).fork(event); };
}

}  // namespace discreet::unlearning::testing
