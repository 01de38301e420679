#include "discreet/numerics/elementary.h"

#include <bit>
#include <cstdint>

#include "discreet/numerics/special-inl.h"

HWY_BEFORE_NAMESPACE();
namespace discreet::numerics {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace fn = HWY_NAMESPACE;
namespace cf = coefficients;

// The scalar functions are the vector templates on one lane.
using Tag = hn::CappedTag<double, 1>;
using Lane = hn::Vec<Tag>;
constexpr Tag kTag;

Lane lane(double x) { return hn::Set(kTag, x); }
double value(Lane x) { return hn::GetLane(x); }

double square_root(double x) { return value(hn::Sqrt(lane(x))); }

__extension__ using Wide = unsigned __int128;

}  // namespace

double exp(double x) noexcept { return value(fn::Exp(kTag, lane(x))); }
double expm1(double x) noexcept { return value(fn::Expm1(kTag, lane(x))); }
double log(double x) noexcept { return value(fn::Log(kTag, lane(x))); }
double log1p(double x) noexcept { return value(fn::Log1p(kTag, lane(x))); }
double sin(double x) noexcept { return value(fn::Sin(kTag, lane(x))); }
double cos(double x) noexcept { return value(fn::Cos(kTag, lane(x))); }
double atan2(double y, double x) noexcept { return value(fn::Atan2(kTag, lane(y), lane(x))); }
double erfc(double x) noexcept { return value(fn::Erfc(kTag, lane(x))); }
double log_erfc(double x) noexcept { return value(fn::LogErfc(kTag, lane(x))); }
double normal_cdf(double x) noexcept { return value(fn::NormalCdf(kTag, lane(x))); }

void sin_cos_two_pi(double u, double& sine, double& cosine) noexcept {
  Lane s, c;
  fn::SinCosTwoPi(kTag, lane(u), s, c);
  sine = value(s);
  cosine = value(c);
}

double normal_quantile(double p) noexcept {
  if (!(p > 0 && p < 1)) {
    if (p == 0) return -value(fn::Infinity(kTag));
    if (p == 1) return value(fn::Infinity(kTag));
    return value(fn::QuietNan(kTag));
  }
  if (p > 0.25 && p < 0.75) {
    // Solve erf(x / sqrt 2) / 2 = p - 1/2, both sides small together near the centre.
    const double c = p - 0.5;
    double x = c * (cf::kSqrtTwoPi + 2.8 * c * c * cf::kSqrtTwoPi);
    for (int i = 0; i < 3; ++i) {
      Lane tail, low;
      const Lane z = fn::TwoProduct(kTag, lane(x), lane(cf::kInvSqrt2Hi), low);
      low = hn::Add(low, lane(x * cf::kInvSqrt2Lo));
      const double head = value(fn::ErfSmall(kTag, z, low, tail));
      const double residual = (0.5 * head - c) + 0.5 * value(tail);
      const double newton = residual * cf::kSqrtTwoPi * exp(0.5 * x * x);
      x -= newton / (1 + 0.5 * x * newton);  // Halley
    }
    return x;
  }
  // The lower tail; 1 - p is exact above 1/2. Halley's iteration on Phi(-x) = tail, relative to it.
  const double tail = p < 0.5 ? p : 1 - p;
  const double log_tail = log(tail);
  const double w = square_root(-2 * log_tail);
  double x = w - log(w * cf::kSqrtTwoPi) / w;  // the first terms of Mills' ratio
  if (x < 0.5) x = 0.5;
  for (int i = 0; i < 2;
       ++i) {  // from afar, on the logarithm, where the equation is almost straight
    const double z = x * cf::kInvSqrt2Hi;
    const double log_phi = log_erfc(z) - coefficients::kLn2_1;
    const double slope = -exp(-0.5 * x * x - log_phi) * cf::kInvSqrtTwoPi;
    x -= (log_phi - log_tail) / slope;
  }
  for (int i = 0; i < 2; ++i) {
    const double scale = tail < 0x1p-960 ? 0x1p60 : 1;  // subnormal tails lose bits in division
    const double ratio = (normal_cdf(-x) - tail) * scale;
    const double density = cf::kInvSqrtTwoPi * exp(-0.5 * x * x) * scale;
    const double newton = ratio / density;
    x += newton / (1 + 0.5 * x * newton);
  }
  return p < 0.5 ? -x : x;
}

namespace detail {

int reduce_large_angle(double x, double& high, double& low) noexcept {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1075;  // |x| = mantissa * 2^exponent
  const std::uint64_t mantissa = (bits & 0xfffffffffffffu) | 0x10000000000000u;

  // Bits of 2/pi of weight 4 and more, times an integer, vanish modulo 4. The window of 192 bits
  // starts at weight 2 and leaves 137 bits of the fraction; 62 can cancel.
  const int first = exponent - 2 + 64;
  const std::uint64_t* words = cf::kTwoOverPi + first / 64;
  const int shift = first % 64;
  std::uint64_t window[3];
  for (int i = 0; i < 3; ++i)
    window[i] = shift == 0 ? words[i] : words[i] << shift | words[i + 1] >> (64 - shift);
  const Wide last = Wide{window[2]} * mantissa;
  const Wide middle = Wide{window[1]} * mantissa + (last >> 64);
  const std::uint64_t top = window[0] * mantissa + static_cast<std::uint64_t>(middle >> 64);

  // Two bits of quadrant, then the fraction of a quarter turn; to the nearest quadrant.
  Wide turn = Wide{top} << 64 | static_cast<std::uint64_t>(middle);
  std::uint64_t rest = static_cast<std::uint64_t>(last);
  int quadrant = static_cast<int>(top >> 62);
  const bool up = top >> 61 & 1;
  quadrant += up;
  turn = turn << 2 | rest >> 62;
  rest <<= 2;
  bool negative = false;
  if (up) {  // the fraction minus one, negated
    rest = ~rest + 1;
    turn = ~turn + (rest == 0);
    negative = true;
  }
  int zeros = 0;
  while (static_cast<std::uint64_t>(turn >> 64) >> 63 == 0) {
    turn = turn << 1 | rest >> 63;
    rest <<= 1;
    ++zeros;
  }
  // 53 bits, the next 53, each exact in a double.
  const double unit = std::bit_cast<double>(static_cast<std::uint64_t>(1023 - 53 - zeros) << 52);
  double f = static_cast<double>(static_cast<std::uint64_t>(turn >> 75)) * unit;
  double g = static_cast<double>(static_cast<std::uint64_t>(turn >> 22) & 0x1fffffffffffffu) *
             (unit * 0x1p-53);
  if (negative != (x < 0)) {
    f = -f;
    g = -g;
  }
  if (x < 0) quadrant = -quadrant;
  Lane error;
  const Lane product = fn::TwoProduct(kTag, lane(f), lane(cf::kHalfPiHi), error);
  error = hn::Add(error, lane(f * cf::kHalfPiLo + g * cf::kHalfPiHi));
  Lane tail;
  high = value(fn::FastTwoSum(product, error, tail));
  low = value(tail);
  return quadrant & 3;
}

}  // namespace detail
}  // namespace discreet::numerics
HWY_AFTER_NAMESPACE();
