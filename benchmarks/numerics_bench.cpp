// Time per element of the elementary functions, beside libm's; norms beside memcpy; the transform
// beside KissFFT.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <kissfft/kissfft.hh>
#include <random>
#include <thread>
#include <vector>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/fft.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/sum.h"

namespace {

using discreet::numerics::parallel_for;

std::vector<double> uniform(std::size_t n, double low, double high) {
  std::mt19937_64 random(1);
  std::vector<double> x(n);
  for (double& v : x) v = low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  return x;
}

constexpr std::size_t kFew = 4096;  // stays in the first cache

using Span = void (*)(std::span<const double>, std::span<double>) noexcept;
using Scalar = double (*)(double);

void span_form(benchmark::State& state, Span f, double low, double high) {
  const std::vector<double> x = uniform(kFew, low, high);
  std::vector<double> y(kFew);
  for (auto _ : state) {
    f(x, y);
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kFew));
}

void scalar_form(benchmark::State& state, Scalar f, double low, double high) {
  const std::vector<double> x = uniform(kFew, low, high);
  for (auto _ : state)
    for (const double v : x) benchmark::DoNotOptimize(f(v));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kFew));
}

#define DISCREET_FUNCTION(name, low, high)                                                        \
  BENCHMARK_CAPTURE(span_form, name, static_cast<Span>(discreet::numerics::name), low, high);     \
  BENCHMARK_CAPTURE(scalar_form, name, static_cast<Scalar>(discreet::numerics::name), low, high); \
  BENCHMARK_CAPTURE(scalar_form, libm_##name, static_cast<Scalar>(std::name), low, high);

DISCREET_FUNCTION(exp, -20, 20)
DISCREET_FUNCTION(expm1, -2, 2)
DISCREET_FUNCTION(log, 0, 1)
DISCREET_FUNCTION(log1p, -0.9, 4)
DISCREET_FUNCTION(sin, -10, 10)
DISCREET_FUNCTION(cos, -10, 10)
DISCREET_FUNCTION(erfc, -5, 20)
BENCHMARK_CAPTURE(span_form, log_erfc, static_cast<Span>(discreet::numerics::log_erfc), -5, 50);
BENCHMARK_CAPTURE(span_form, normal_cdf, static_cast<Span>(discreet::numerics::normal_cdf), -9, 9);
BENCHMARK_CAPTURE(scalar_form, log_erfc, static_cast<Scalar>(discreet::numerics::log_erfc), -5, 50);
BENCHMARK_CAPTURE(scalar_form, normal_cdf, static_cast<Scalar>(discreet::numerics::normal_cdf), -9,
                  9);
BENCHMARK_CAPTURE(scalar_form, normal_quantile, discreet::numerics::normal_quantile, 0, 1);

constexpr std::size_t kMany = 10'000'000;

void copy(benchmark::State& state) {
  const std::vector<double> x = uniform(kMany, -1, 1);
  std::vector<double> y(kMany, 1.0);
  const int threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    parallel_for(kMany, threads, [&](std::size_t begin, std::size_t end) {
      std::memcpy(y.data() + begin, x.data() + begin, (end - begin) * sizeof(double));
    });
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(copy)->Arg(1)->Arg(2)->UseRealTime();

void norm(benchmark::State& state) {
  const std::vector<double> x = uniform(kMany, -1, 1);
  for (auto _ : state)
    benchmark::DoNotOptimize(discreet::numerics::norm_l2(x, static_cast<int>(state.range(0))));
}
BENCHMARK(norm)->Arg(1)->Arg(2)->UseRealTime();

void norm_of_floats(benchmark::State& state) {
  const std::vector<double> doubles = uniform(kMany, -1, 1);
  const std::vector<float> x(doubles.begin(), doubles.end());
  for (auto _ : state)
    benchmark::DoNotOptimize(discreet::numerics::norm_l2(x, static_cast<int>(state.range(0))));
}
BENCHMARK(norm_of_floats)->Arg(1)->Arg(2)->UseRealTime();

void fft(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const discreet::numerics::Fft transform(n);
  std::vector<std::complex<double>> x(n, 1e-3), work(n);
  for (auto _ : state) {
    transform.forward(x, work);
    transform.inverse(x, work);
  }
}
BENCHMARK(fft)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 20)->Arg(60000);

void kiss_fft(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const kissfft<double> forward(n, false), inverse(n, true);
  std::vector<std::complex<double>> x(n, 1e-3), y(n);
  for (auto _ : state) {
    forward.transform(x.data(), y.data());
    inverse.transform(y.data(), x.data());
    for (auto& v : x) v /= static_cast<double>(n);
  }
}
BENCHMARK(kiss_fft)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 20)->Arg(60000);

}  // namespace

BENCHMARK_MAIN();
