#include "discreet/data/scattering.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "discreet/base/error.h"
#include "discreet/data/scattering_impl.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/fft.h"
#include "discreet/numerics/parallel.h"

namespace discreet::data {
namespace {

using Complex = std::complex<double>;

constexpr double kPi = 3.14159265358979323846;
constexpr std::size_t kMargin = 2;  // pixels of the torus before the image
constexpr std::size_t kStep = 4;    // 2^J
constexpr double kSlant = 0.5;      // 4 / angles: how much longer a wavelet is across its wave
constexpr double kPhiWidth = 1.6;   // 0.8 * 2^(J - 1)
constexpr int kPeriods = 3;         // copies on either side: the next is below binary64

std::size_t torus_length(std::size_t image) {
  std::size_t n = (image + 2 * kMargin + kStep - 1) / kStep * kStep;
  while (!numerics::is_fft_length(n)) n += kStep;
  return n;
}

FftPasses passes_of(std::size_t n) {
  FftPasses out;
  std::size_t left = n, stride = 1;
  while (left > 1) {
    std::size_t radix = 4;
    for (const std::size_t r : {4, 2, 3, 5})
      if (left % r == 0) {
        radix = r;
        break;
      }
    FftPass pass{
        .radix = radix, .groups = left / radix, .stride = stride, .cosine = {}, .sine = {}};
    const auto add = [&](double turns) {
      double s = 0, c = 0;
      numerics::sin_cos_two_pi(turns, s, c);
      pass.cosine.push_back(static_cast<float>(c));
      pass.sine.push_back(static_cast<float>(s));
    };
    for (std::size_t p = 0; p < pass.groups; ++p)
      for (std::size_t j = 0; j < radix; ++j)
        add(static_cast<double>(p * j) / static_cast<double>(left));
    for (std::size_t j = 0; j < radix; ++j)
      add(static_cast<double>(j) / static_cast<double>(radix));
    out.push_back(std::move(pass));
    left /= radix;
    stride *= radix;
  }
  return out;
}

// phi along one axis of the torus, for samples `apart` pixels apart: [outputs][n / apart], the
// weights of each output adding up to 1 over all pixels.
std::vector<float> average_of(std::size_t n, std::size_t apart, std::size_t outputs) {
  std::vector<double> phi(n);
  double total = 0;
  for (std::size_t t = 0; t < n; ++t) {
    for (int period = -kPeriods; period <= kPeriods; ++period) {
      const double x = static_cast<double>(t) + period * static_cast<double>(n);
      phi[t] += numerics::exp(-x * x / (2 * kPhiWidth * kPhiWidth));
    }
    total += phi[t];
  }
  std::vector<float> out;
  for (std::size_t i = 0; i < outputs; ++i)
    for (std::size_t t = 0; t < n; t += apart) {
      const std::size_t distance = (kStep * (i + 1) + n - t) % n;
      const double weight = phi[distance] / total * static_cast<double>(apart);
      // What cannot change a binary32 sum is left out.
      out.push_back(weight < 0x1p-30 ? 0.0f : static_cast<float>(weight));
    }
  return out;
}

Plane plane_of(std::size_t height, std::size_t width, std::size_t apart, std::size_t out_height,
               std::size_t out_width) {
  return {.height = height / apart,
          .width = width / apart,
          .columns = passes_of(height / apart),
          .rows = passes_of(width / apart),
          .tall = average_of(height, apart, out_height),
          .wide = average_of(width, apart, out_width)};
}

// The transform of the periodised Morlet wavelet at scale j and an angle; it is real.
std::vector<double> morlet(std::size_t height, std::size_t width, int j, std::size_t angle) {
  const double sigma = 0.8 * (1 << j), frequency = 0.75 * kPi / (1 << j);
  const double theta = kPi * (3 - static_cast<double>(angle)) / kAngles;
  const double c = numerics::cos(theta), s = numerics::sin(theta);
  std::vector<Complex> wave(height * width), envelope(height * width);
  Complex wave_sum = 0, envelope_sum = 0;
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t x = 0; x < width; ++x) {
      Complex w = 0;
      double e = 0;
      for (int py = -kPeriods; py <= kPeriods; ++py)
        for (int px = -kPeriods; px <= kPeriods; ++px) {
          const double down = static_cast<double>(y) + py * static_cast<double>(height);
          const double right = static_cast<double>(x) + px * static_cast<double>(width);
          const double along = c * down + s * right, across = -s * down + c * right;
          const double size = numerics::exp(-(along * along + kSlant * kSlant * across * across) /
                                            (2 * sigma * sigma)) *
                              kSlant / (2 * kPi * sigma * sigma);
          w += size * Complex(numerics::cos(frequency * along), numerics::sin(frequency * along));
          e += size;
        }
      wave_sum += wave[y * width + x] = w;
      envelope_sum += envelope[y * width + x] = e;
    }
  // A multiple of the envelope makes the mean zero.
  const double factor = wave_sum.real() / envelope_sum.real();
  for (std::size_t i = 0; i < wave.size(); ++i) wave[i] -= factor * envelope[i];

  const numerics::Fft rows(width), columns(height);
  std::vector<Complex> line(std::max(height, width)), work(line.size());
  for (std::size_t y = 0; y < height; ++y)
    rows.forward(std::span(wave).subspan(y * width, width), std::span(work).first(width));
  for (std::size_t x = 0; x < width; ++x) {
    for (std::size_t y = 0; y < height; ++y) line[y] = wave[y * width + x];
    columns.forward(std::span(line).first(height), std::span(work).first(height));
    for (std::size_t y = 0; y < height; ++y) wave[y * width + x] = line[y];
  }
  std::vector<double> out;
  for (const Complex& value : wave) out.push_back(value.real());
  return out;
}

std::vector<std::size_t> reflection(std::size_t image, std::size_t torus) {
  std::vector<std::size_t> out;
  for (std::size_t t = 0; t < torus; ++t) {
    const std::size_t period = 2 * (image - 1);
    const std::size_t at = (t + period - kMargin) % period;
    out.push_back(at < image ? at : period - at);
  }
  return out;
}

}  // namespace

Scattering::Scattering(std::size_t height, std::size_t width) : plan_(std::make_unique<Plan>()) {
  for (const std::size_t length : {height, width})
    if (length < 8 || length > 512)
      invalid_config("model.features",
                     "scattering needs images with sides of 8 to 512 pixels, found {} x {}; set "
                     "data.image, or use another model.features",
                     height, width);
  Plan& p = *plan_;
  p.height = height;
  p.width = width;
  p.out_height = height / kStep;
  p.out_width = width / kStep;
  const std::size_t h = torus_length(height), w = torus_length(width);
  p.full = plane_of(h, w, 1, p.out_height, p.out_width);
  p.half = plane_of(h, w, 2, p.out_height, p.out_width);
  p.from_row = reflection(height, h);
  p.from_column = reflection(width, w);
  for (int j = 0; j < 2; ++j)
    for (std::size_t a = 0; a < kAngles; ++a)
      for (const double value : morlet(h, w, j, a))
        p.wavelets[static_cast<std::size_t>(j)][a].push_back(
            static_cast<float>(value / static_cast<double>(h * w)));
}

Scattering::~Scattering() = default;
Scattering::Scattering(Scattering&&) noexcept = default;

std::size_t Scattering::positions() const noexcept { return plan_->out_height * plan_->out_width; }
std::size_t Scattering::size() const noexcept { return kChannels * positions(); }

void Scattering::apply(std::span<const float> x, std::size_t records, std::span<float> out,
                       int threads) const {
  const Plan& p = *plan_;
  const std::size_t pixels = p.height * p.width;
  if (x.size() != records * pixels || out.size() != records * size())
    invalid_input("Scattering::apply", "found {} numbers in and {} out for {} images of {} x {}",
                  x.size(), out.size(), records, p.height, p.width);
  const std::size_t blocks = (records + kLanes - 1) / kLanes;
  numerics::parallel_items(blocks, threads, [&](std::size_t begin, std::size_t end) {
    std::vector<float> torus(p.full.pixels() * kLanes), features(size() * kLanes);
    std::vector<float> scratch(p.scratch());
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t first = block * kLanes, count = std::min(kLanes, records - first);
      for (std::size_t i = 0; i < p.full.pixels(); ++i) {
        const std::size_t from =
            p.from_row[i / p.full.width] * p.width + p.from_column[i % p.full.width];
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          torus[i * kLanes + lane] = lane < count ? x[(first + lane) * pixels + from] : 0.0f;
      }
      scatter(p, torus.data(), features.data(), scratch.data());
      for (std::size_t lane = 0; lane < count; ++lane)
        for (std::size_t i = 0; i < size(); ++i)
          out[(first + lane) * size() + i] = features[i * kLanes + lane];
    }
  });
}

std::size_t Scattering::Plan::scratch() const { return 14 * full.pixels() * kLanes; }

}  // namespace discreet::data
