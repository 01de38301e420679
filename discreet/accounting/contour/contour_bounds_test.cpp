// Each bound of contour.md on its own, against extended precision.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <random>
#include <vector>

#include "discreet/accounting/contour/contour_fixed_impl.h"
#include "discreet/accounting/contour/contour_layers_impl.h"
#include "discreet/accounting/contour/contour_nodes_impl.h"
#include "discreet/accounting/contour/contour_quadrature_impl.h"
#include "discreet/accounting/contour/contour_waves_impl.h"

namespace discreet::accounting::contour {
namespace {

using Real = long double;
using Complex = std::complex<Real>;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  Real unit() { return static_cast<Real>(engine_() >> 11) * 0x1p-53L; }
  double operator()(double low, double high) {
    return static_cast<double>(low * std::exp(std::log(high / low) * unit()));
  }
  Direction direction() { return engine_() % 2 == 0 ? Direction::kRemove : Direction::kAdd; }

 private:
  std::mt19937_64 engine_;
};

// g^w phi at a real x, for Re w = weight(c) and phase exp(i t loss).
Complex integrand(const Step& step, Real c, Real t, Real x) {
  const Real s = step.sigma, q = step.rate;
  const Real l = log1pl(q * expm1l((2 * x - 1) / (2 * s * s)));
  const bool remove = step.direction == Direction::kRemove;
  const Real size = expl((remove ? 1 + c : -c) * l - x * x / (2 * s * s)) /
                    (s * sqrtl(2 * 3.14159265358979323846264338327950288L));
  return size * Complex(cosl(t * l), (remove ? 1 : -1) * sinl(t * l));
}

// The integral over [a, b] by Gauss-Legendre with 10 points on many panels.
Complex integral(const Step& step, Real c, Real t, Real a, Real b, int panels) {
  static const Real x[] = {0.1488743389816312108848260L, 0.4333953941292471907992659L,
                           0.6794095682990244062343274L, 0.8650633666889845107320967L,
                           0.9739065285171717200779640L};
  static const Real w[] = {0.2955242247147528701738930L, 0.2692667193099963550912269L,
                           0.2190863625159820439955349L, 0.1494513491505805931457763L,
                           0.0666713443086881375935688L};
  Complex sum = 0;
  const Real half = (b - a) / panels / 2;
  for (int k = 0; k < panels; ++k) {
    const Real middle = a + half * (2 * k + 1);
    for (int i = 0; i < 5; ++i) {
      sum += half * w[i] *
             (integrand(step, c, t, middle - half * x[i]) +
              integrand(step, c, t, middle + half * x[i]));
    }
  }
  return sum;
}

TEST(ContourBounds, QuadratureErrorStaysBelowItsBound) {
  Draw draw(1);
  int meaningful = 0;
  for (int i = 0; i < 400; ++i) {
    const Step step{draw(1e-3, .9), draw(.4, 4), draw.direction()};
    const double c = draw(.1, 20), t = draw(.1, 30), theta = draw(.2, 3);
    const double h =
        static_cast<float>(draw(.3, 3) * std::min(step.sigma, step.sigma * step.sigma));
    const int first = -static_cast<int>(draw(2, 6) * step.sigma / h) - 1;
    const int last = static_cast<int>((draw(2, 6) * step.sigma + 1) / h) + 1;
    const double a = (first - .5) * h, b = (last + .5) * h;
    Complex sum = 0;
    for (int k = first; k <= last; ++k) sum += Real{h} * integrand(step, c, t, Real{h} * k);
    const Real error = std::abs(sum - integral(step, c, t, a, b, 400));
    const Real mass = integral(step, c, 0, a, b, 400).real();
    const QuadratureBound bound(step, c, a, b, h, theta);
    const Real allowed =
        mass * bound.strip(t) + bound.ends(t, static_cast<double>(integrand(step, c, 0, a).real()),
                                           static_cast<double>(integrand(step, c, 0, b).real()));
    EXPECT_LE(error, allowed * (1 + 1e-12L) + 1e-17L * mass)
        << step.rate << " " << step.sigma << " c=" << c << " t=" << t << " h=" << h;
    meaningful += error > 1e-14L * mass && allowed < mass;
  }
  EXPECT_GT(meaningful, 60);  // neither a vanishing error nor a vacuous bound
}

TEST(ContourBounds, LayersBoundTheTransformAtEveryHigherFrequency) {
  Draw draw(2);
  for (int i = 0; i < 60; ++i) {
    const Step step{draw(1e-3, .9), draw(.5, 4), draw.direction()};
    const double c = draw(.2, 12);
    const CoarseGrid grid(step);
    const Window window = grid.window(c, {32, 48, 20});
    if (!window.feasible) continue;
    const Real mass = integral(step, c, 0, window.left, window.right, 600).real();
    const double log_mass = static_cast<double>(logl(mass)) + 1e-15;
    const Layers layers(grid, c, window, grid.log_mass(c, window));
    const double scale = 1 / (step.rate * step.sigma + .1);
    for (const double t : {.1 * scale, scale, 4 * scale, 20 * scale}) {
      const Real bound = expl(layers.log_bound(t, log_mass));
      EXPECT_LE(bound, 1);
      for (const double more : {1., 1.1, 1.37, 2., 3.3}) {
        const Real size =
            std::abs(integral(step, c, t * more, window.left, window.right, 600)) / mass;
        EXPECT_LE(size, bound * (1 + 1e-12L))
            << step.rate << " " << step.sigma << " c=" << c << " t=" << t * more;
      }
    }
  }
}

TEST(ContourBounds, NodesKeepWithinTheirRoundOff) {
  Draw draw(3);
  for (int i = 0; i < 60; ++i) {
    const Step step{draw(1e-4, .95), draw(.4, 5), draw.direction()};
    const double c = draw(.1, 100);
    const double h = static_cast<float>(.2 * std::min(step.sigma, step.sigma * step.sigma));
    const int first = -static_cast<int>(8 * step.sigma / h);
    const int count = static_cast<int>((16 * step.sigma + 1) / h);
    const Nodes nodes(step, c, h, first, count);
    const double dt = static_cast<float>(draw(.1, 3));
    std::vector<Nodes::Wave> waves(70);  // direct, strides, steps, and direct again
    nodes.waves(dt, waves);
    Real mass = 0;
    for (int k = 0; k < count; ++k) {
      mass += Real{h} * integrand(step, c, 0, Real{h} * (first + k)).real();
    }
    const Real scale = expl(nodes.log_mass());
    EXPECT_LE(std::abs(mass / scale - 1), nodes.mass_error());
    EXPECT_LT(nodes.mass_error(), 1e-11);
    EXPECT_LE(logl(mass), nodes.log_sum_upper(c));
    for (std::size_t j = 1; j <= waves.size(); ++j) {
      const Real t = static_cast<Real>(j) * dt;
      Complex sum = 0;
      for (int k = 0; k < count; ++k) {
        sum += Real{h} * integrand(step, c, t, Real{h} * (first + k));
      }
      const Real m = t * static_cast<Real>(nodes.centre());
      const Complex exact = sum / scale * Complex(cosl(m), -sinl(m));
      EXPECT_LE(std::abs(exact - Complex(waves[j - 1].re, waves[j - 1].im)), waves[j - 1].error);
    }
  }
}

TEST(ContourBounds, ConstantsOfTheProofsHold) {
  Real largest = 0, lobe = 0, between = 0;
  for (Real x = 1e-3L; x < 40; x += 1e-4L) {
    largest = std::max(largest, sinl(x) * sinl(x) / x);
    if (x > 3.1415926L) lobe = std::max(lobe, std::abs(sinl(x)) / x);
    if (x >= 2.6L && x < 3.1415926L) between = std::max(between, sinl(x) / x);
  }
  EXPECT_LT(largest, .7247L);
  EXPECT_LT(lobe, .21724L);
  EXPECT_LT(between, .21724L);
}

TEST(ContourFixed, SumsExactlyInAnyOrder) {
  const Fixed big = Fixed::product(1ll << 53, 12.75);
  const Fixed tiny = Fixed::product(3, 0x1p-64);
  Fixed a, b;
  for (const Fixed& part : {big, tiny, Fixed::product(-1, 0.1)}) a += part;
  for (const Fixed& part : {Fixed::product(-1, 0.1), big, tiny}) b += part;
  EXPECT_EQ((a - b).value(), 0);
  a += Fixed::product(-(1ll << 53), 12.75);
  EXPECT_EQ(a.value(), -0.1 + 3 * 0x1p-64);
  EXPECT_EQ(Fixed::short_product(0x1.8p-3, 5.0).value(), 0.9375);
  EXPECT_TRUE(std::isnan(Fixed::product(1ll << 53, 1e9).value()));
  EXPECT_TRUE(std::isnan(Fixed::product(1, NAN).value()));
}

TEST(ContourWaves, AddInTheDocumentedOrder) {
  Draw draw(4);
  std::vector<double> values(96);
  for (double& value : values) value = draw(1e-8, 1e8);
  double lanes[8] = {};
  for (std::size_t block = 0; block < 96; block += 32) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      double part = values[block + lane];
      for (std::size_t row = 8; row < 32; row += 8) part += values[block + row + lane];
      lanes[lane] += part;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  EXPECT_EQ(blocked_sum(values.data(), values.size()), sum);
}

}  // namespace
}  // namespace discreet::accounting::contour
