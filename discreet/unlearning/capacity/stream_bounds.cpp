#include "discreet/unlearning/capacity/stream_bounds.h"

#include <algorithm>
#include <cmath>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"
#include "discreet/unlearning/capacity/literal.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "unlearning::stream";

std::uint64_t floor_count(double value, std::uint64_t limit) {
  if (!(value >= 1)) return 0;
  if (value >= static_cast<double>(limit)) return limit;
  return static_cast<std::uint64_t>(value);
}

}  // namespace

std::string_view to_string(Loss loss) noexcept {
  return loss == Loss::kSquared ? "squared" : "logistic";
}

void require_valid(const StreamConstants& k) {
  if (k.dimension < 1 || k.dimension > (std::size_t{1} << 24)) {
    invalid_input(kOp, "dimension is {}; it must be in 1 to 2^24", k.dimension);
  }
  for (const auto& [name, value] :
       {std::pair{"lambda", k.lambda}, std::pair{"G_f", k.G_f}, std::pair{"D", k.D},
        std::pair{"R", k.R}, std::pair{"Y", k.Y}}) {
    require_moderate(kOp, name, value);
  }
}

std::uint64_t step_offset(const StreamConstants& k) {
  require_valid(k);
  const double slope = k.loss == Loss::kSquared ? 1 : 0.25;
  const double exact = slope * k.R * k.R / (2 * k.lambda);
  // A quotient that is whole in exact arithmetic may come out a little above: t0 is then one more
  // than needed, which is sound. Coming out below must not happen.
  const double t0 = std::ceil(exact == std::floor(exact) ? exact : numerics::round_up(exact, 3));
  if (!(t0 <= 0x1p40)) refuse(kOp, "L R^2 / (2 lambda)", exact, "a larger lambda or a smaller R");
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(t0));
}

double learning_regret(const StreamConstants& k, std::uint64_t T) {
  const auto t0 = static_cast<double>(step_offset(k));
  const double G = k.G_f + k.lambda * k.D;
  return k.lambda * t0 * k.D * k.D / 2 +
         G * G / (2 * k.lambda) * numerics::log1p(static_cast<double>(T) / t0);
}

std::uint64_t certified_sample_complexity(const StreamConstants& k, double gamma) {
  require_positive(kOp, "gamma", gamma);
  const auto fits = [&](std::uint64_t t) {
    return learning_regret(k, t) / static_cast<double>(t) <= gamma;
  };
  // R_learn is concave with R_learn(0) >= 0, so R_learn(t)/t does not increase.
  std::uint64_t high = 1;
  while (!fits(high)) {
    high *= 2;
    if (high > (std::uint64_t{1} << 53)) return kCountLimit;
  }
  std::uint64_t low = high / 2;  // does not fit, or is 0
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

StreamCapacity stream_capacity(const StreamConstants& k, double rho, std::uint64_t T,
                               std::uint64_t t_min, double gamma) {
  require_not_negative(kOp, "rho", rho);
  require_positive(kOp, "gamma", gamma);
  if (T < 1 || T > kCountLimit) refuse(kOp, "T", static_cast<double>(T), "1 to 2^63 - 1 events");
  const auto events = static_cast<double>(T);
  const double s = static_cast<double>(t_min) + static_cast<double>(step_offset(k));
  const double left = gamma - learning_regret(k, T) / events;
  if (!(left > 0)) return {0, 0};
  const double afforded = k.lambda * rho * left * events * s / static_cast<double>(k.dimension);
  return {floor_count(4 * afforded / (k.G_f * k.G_f), T),
          floor_count(2 * std::sqrt(afforded) / k.G_f, T)};
}

}  // namespace discreet::unlearning
