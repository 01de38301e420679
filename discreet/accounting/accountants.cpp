#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/pld.h"
#include "discreet/accounting/renyi/moments.h"
#include "discreet/accounting/renyi/renyi_events_impl.h"
#include "discreet/accounting/tally_impl.h"
#include "discreet/base/error.h"

namespace discreet::accounting {

namespace {

constexpr double kUnit = 0x1p-53;

class RdpAccountant final : public TallyAccountant {
 public:
  using TallyAccountant::TallyAccountant;
  std::string_view name() const noexcept override { return "rdp"; }
  std::unique_ptr<Accountant> clone() const override {
    return std::make_unique<RdpAccountant>(*this);
  }

 private:
  RenyiComposition composition() const {
    return {name(), events(), options().log_space_accounting};
  }
  void check(const Event& event) const override { renyi_curve(name(), event); }
  EpsilonBound evaluate_epsilon(double delta) const override {
    RenyiComposition all = composition();
    return {Interval{0, renyi_epsilon(all, delta)}, adjacency(), std::nullopt};
  }
  Interval evaluate_delta(double epsilon) const override {
    RenyiComposition all = composition();
    return {0, renyi_delta(all, epsilon)};
  }
};

class MomentsAccountant final : public TallyAccountant {
 public:
  using TallyAccountant::TallyAccountant;
  std::string_view name() const noexcept override { return "moments"; }
  std::unique_ptr<Accountant> clone() const override {
    return std::make_unique<MomentsAccountant>(*this);
  }

 private:
  void check(const Event& event) const override {
    // The leak of an explicit delta is not part of the published method.
    const auto* guarantee = std::get_if<Guarantee>(&event.mechanism());
    if (guarantee != nullptr && guarantee->delta > 0) refuse(name(), event);
    renyi_curve(name(), event);
  }
  template <class Convert>
  double converted(const Convert& convert) const {
    RenyiComposition all(name(), events(), options().log_space_accounting);
    return convert([&all](double order) { return all.at(order); });
  }
  EpsilonBound evaluate_epsilon(double delta) const override {
    return {Interval{0, converted([&](const MomentSum& m) { return moments_epsilon(m, delta); })},
            adjacency(), std::nullopt};
  }
  Interval evaluate_delta(double epsilon) const override {
    return {0, converted([&](const MomentSum& m) { return moments_delta(m, epsilon); })};
  }
};

// Exact for full batches. Below rate 1 the bound is that of `rdp`, and the central limit number is
// reported beside it.
class GdpAccountant final : public TallyAccountant {
 public:
  using TallyAccountant::TallyAccountant;
  std::string_view name() const noexcept override { return "gdp"; }
  std::string_view bounded_by() const noexcept override {
    return all(is_full_batch) ? name() : "rdp";
  }
  std::unique_ptr<Accountant> clone() const override {
    return std::make_unique<GdpAccountant>(*this);
  }

 private:
  // Every record in every step (or in one step of a shuffled epoch, which is no worse).
  static bool is_full_batch(const Event& event) {
    const auto* poisson = std::get_if<Poisson>(&event.sampling());
    return std::holds_alternative<NoSampling>(event.sampling()) ||
           std::holds_alternative<ShuffledEpoch>(event.sampling()) ||
           (poisson != nullptr && poisson->rate == 1);
  }
  // Where the Gaussian is the mechanism itself and not only a bound on it.
  static bool is_attained(const Event& event) {
    return std::holds_alternative<Gaussian>(event.mechanism()) &&
           !std::holds_alternative<ShuffledEpoch>(event.sampling());
  }
  static double multiplier(const Event& event) {
    const double size = event.adjacency() == Adjacency::kReplaceOne ? 2 : 1;
    return *gaussian_noise_multiplier(event.mechanism()) / size;
  }

  void check(const Event& event) const override {
    if (!gaussian_noise_multiplier(event.mechanism())) refuse(name(), event);
    renyi_curve(name(), event);
  }
  template <class Predicate>
  bool all(const Predicate& predicate) const {
    return std::all_of(events().begin(), events().end(),
                       [&](const auto& entry) { return predicate(entry.first); });
  }
  // mu of full batches, enclosed.
  Interval mu() const {
    double square = 0;
    for (const auto& [event, count] : events()) {
      const double sigma = multiplier(event);
      square += static_cast<double>(count) / (sigma * sigma);
    }
    const double value = std::sqrt(square);
    const double slack = kUnit * static_cast<double>(events().size() + 8);
    // 1/sigma^2 underflows below 1e-308, which 2^64 steps raise to (1e-144)^2.
    constexpr double kUnderflow = 1e-143;
    return {all(is_attained) ? std::max(0.0, value * (1 - slack) - kUnderflow) : 0,
            value * (1 + slack) + kUnderflow * static_cast<double>(events().size())};
  }
  CltMu approximate_mu() const {
    std::vector<GaussianSteps> poisson;
    std::vector<GaussianSteps> uniform;
    for (const auto& [event, count] : events()) {
      const double sigma = multiplier(event);
      if (const auto* fixed = std::get_if<FixedSize>(&event.sampling())) {
        uniform.push_back(
            {static_cast<double>(fixed->batch) / static_cast<double>(fixed->population), sigma,
             count});
      } else {
        const auto* sample = std::get_if<Poisson>(&event.sampling());
        poisson.push_back({sample == nullptr ? 1 : sample->rate, sigma, count});
      }
    }
    const double a = clt_mu_poisson(poisson).value();
    const double b = clt_mu_uniform(uniform).value();
    return CltMu(std::sqrt(a * a + b * b));
  }
  EpsilonBound evaluate_epsilon(double delta) const override {
    if (all(is_full_batch)) {
      const Interval m = mu();
      return {
          Interval{gaussian_epsilon(m.lower, delta).lower, gaussian_epsilon(m.upper, delta).upper},
          adjacency(), std::nullopt};
    }
    RenyiComposition bound(name(), events(), options().log_space_accounting);
    return {Interval{0, renyi_epsilon(bound, delta)}, adjacency(),
            clt_epsilon(approximate_mu(), delta)};
  }
  Interval evaluate_delta(double epsilon) const override {
    if (all(is_full_batch)) {
      const Interval m = mu();
      return {gaussian_delta(m.lower, epsilon).lower, gaussian_delta(m.upper, epsilon).upper};
    }
    RenyiComposition bound(name(), events(), options().log_space_accounting);
    return {0, renyi_delta(bound, epsilon)};
  }
};

// Composition through certified divergences: the epsilon of the trade-off curve of fdp.h, which the
// same events reduced give.
class FdpAccountant final : public TallyAccountant {
 public:
  using TallyAccountant::TallyAccountant;
  std::string_view name() const noexcept override { return "f_dp"; }
  std::unique_ptr<Accountant> clone() const override {
    return std::make_unique<FdpAccountant>(*this);
  }

 private:
  void check(const Event& event) const override { reduce({{event, 1}}); }
  Composition composition() const {
    std::vector<RepeatedEvent> all;
    for (const auto& [event, count] : events()) all.push_back({event, count});
    return reduce(all);
  }
  EpsilonBound evaluate_epsilon(double delta) const override {
    return {certified_epsilon(composition(), delta).value, adjacency(), std::nullopt};
  }
  Interval evaluate_delta(double epsilon) const override {
    return certified_delta(composition(), epsilon).value;
  }
};

// PldAccountant behind the interface. It fixes its adjacency at the first event.
class Pld final : public Accountant {
 public:
  std::string_view name() const noexcept override { return "pld"; }
  std::unique_ptr<Accountant> clone() const override { return std::make_unique<Pld>(*this); }
  Adjacency adjacency() const noexcept override { return (pld_ ? *pld_ : kNothing).adjacency(); }

  std::vector<RepeatedEvent> composed() const override {
    return (pld_ ? *pld_ : kNothing).events();
  }
  void compose(const Event& event, std::uint64_t count) override {
    if (pld_) {
      pld_->add(event, count);
      return;
    }
    PldAccountant first(event.adjacency());
    first.add(event, count);
    pld_ = std::move(first);
  }
  EpsilonBound epsilon(double delta) const override {
    const PldAccountant& pld = pld_ ? *pld_ : kNothing;
    return {pld.epsilon(delta).value, pld.adjacency(), std::nullopt};
  }
  Interval delta(double epsilon) const override {
    return (pld_ ? *pld_ : kNothing).delta(epsilon).value;
  }
  // Without a copy, so that contours that were evaluated already are reused.
  bool would_exceed(const Event& event, std::uint64_t count, double target,
                    double delta) const override {
    if (pld_) return pld_->would_exceed(event, count, target, delta);
    return PldAccountant(event.adjacency()).would_exceed(event, count, target, delta);
  }
  Bytes save() const override { return (pld_ ? *pld_ : kNothing).save(); }
  void restore(ByteView bytes) override {
    try {
      PldAccountant restored = PldAccountant::restore(bytes);
      if (restored.steps() == 0) {
        pld_.reset();
      } else {
        pld_ = std::move(restored);
      }
    } catch (const Error& error) {
      malformed("pld", "the saved state cannot be restored ({})", error.sentence());
    }
  }

 private:
  inline static const PldAccountant kNothing{Adjacency::kAddRemove};
  std::optional<PldAccountant> pld_;
};

}  // namespace

std::unique_ptr<Accountant> make_accountant(std::string_view name, AccountantOptions options) {
  if (name == "pld") return std::make_unique<Pld>();
  if (name == "f_dp") return std::make_unique<FdpAccountant>(options);
  if (name == "rdp") return std::make_unique<RdpAccountant>(options);
  if (name == "moments") return std::make_unique<MomentsAccountant>(options);
  if (name == "gdp") return std::make_unique<GdpAccountant>(options);
  invalid_config("make_accountant",
                 "unknown accountant \"{}\"; choose pld, moments, rdp, f_dp or gdp", name);
}

bool require_agreement(const Accountant& accountant, double delta) {
  PldAccountant again(accountant.adjacency());
  try {
    for (const RepeatedEvent& each : accountant.composed()) again.add(each.event, each.count);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidDpConfig) throw;
    return false;
  }
  const Interval said = accountant.epsilon(delta).epsilon;
  const Interval found = again.verify(delta).value;
  if (said.lower <= found.upper && found.lower <= said.upper) return true;
  fail(ErrorCode::kAccountantDivergence, "require_agreement",
       "accountant {} returned [{}, {}], and a second computation [{}, {}], which do not overlap; "
       "trust neither and report this",
       accountant.name(), said.lower, said.upper, found.lower, found.upper);
}

}  // namespace discreet::accounting
