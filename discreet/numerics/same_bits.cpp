// Prints one 64-bit hash per function over a fixed set of arguments. Two builds for two processors
// must print the same lines.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/fft.h"
#include "discreet/numerics/sum.h"

namespace discreet::numerics {
namespace {

// FNV-1a over the bytes of a double.
class Hash {
 public:
  void add(double x) {
    auto bits = std::bit_cast<std::uint64_t>(x);
    for (int i = 0; i < 8; ++i, bits >>= 8) state_ = (state_ ^ (bits & 0xff)) * 0x100000001b3u;
  }
  void print(const char* name) const {
    std::printf("%-16s %016llx\n", name, static_cast<unsigned long long>(state_));
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

using Span = void (*)(std::span<const double>, std::span<double>) noexcept;
using Scalar = double (*)(double);

void print_hashes() {
  std::mt19937_64 random(2024);
  std::vector<double> x;
  x.reserve(60'000);
  // Any bit pattern (NaN of every kind, infinities, subnormals), then numbers between -40 and 40,
  // then between 0 and 1.
  for (int i = 0; i < 20'000; ++i) x.push_back(std::bit_cast<double>(random()));
  for (int i = 0; i < 20'000; ++i)
    x.push_back(static_cast<double>(static_cast<std::int64_t>(random()) >> 11) * 0x1p-52 * 40);
  for (int i = 0; i < 20'000; ++i) x.push_back(static_cast<double>(random() >> 11) * 0x1p-53);

  const struct {
    const char* name;
    Scalar scalar;
    Span span;
  } functions[] = {{"exp", exp, exp},
                   {"expm1", expm1, expm1},
                   {"log", log, log},
                   {"log1p", log1p, log1p},
                   {"sin", sin, sin},
                   {"cos", cos, cos},
                   {"erfc", erfc, erfc},
                   {"log_erfc", log_erfc, log_erfc},
                   {"normal_cdf", normal_cdf, normal_cdf},
                   {"normal_quantile", normal_quantile, nullptr}};
  for (const auto& f : functions) {
    Hash hash;
    for (const double v : x) hash.add(f.scalar(v));
    if (f.span != nullptr) {
      std::vector<double> y(x.size());
      f.span(x, y);
      for (const double v : y) hash.add(v);
    }
    hash.print(f.name);
  }
  Hash angles, sums, spectrum;
  for (std::size_t i = 0; i < x.size(); ++i) angles.add(atan2(x[i], x[x.size() - 1 - i]));
  angles.print("atan2");

  const std::span<const double> tame = std::span(x).subspan(20'000);
  const std::vector<float> floats(tame.begin(), tame.end());
  for (const std::size_t n : {1u, 1000u, 40'000u}) {
    sums.add(sum(tame.first(n)));
    sums.add(dot(tame.first(n), tame.last(n)));
    sums.add(norm_l2_upper(tame.first(n)));
    sums.add(norm_l2_upper(std::span(floats).first(n)));
  }
  sums.add(sum(std::span<const double>(x)));
  sums.add(norm_l2(std::span<const double>(x)));
  sums.print("sums");

  std::vector<Fft::Complex> data(3600), work(3600);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = {tame[2 * i], tame[2 * i + 1]};
  Fft(3600).forward(data, work);
  for (const Fft::Complex v : data) {
    spectrum.add(v.real());
    spectrum.add(v.imag());
  }
  spectrum.print("fft");
}

}  // namespace
}  // namespace discreet::numerics

int main() { discreet::numerics::print_hashes(); }
