#pragma once

#include <cstddef>
#include <memory>
#include <span>

// Wavelet scattering (Mallat 2012; Bruna and Mallat 2013): the response of an image to a cascade of
// wavelets and moduli, averaged over 4 x 4 pixels. Nothing is learnt, and an image's features
// depend only on that image, so it costs no privacy.
// Proof: features.md
namespace discreet::data {

// Two scales (J = 2), eight angles, orders 0 to 2. An image of H x W is extended by reflection to a
// torus, where it starts at (2, 2). The lengths of the torus are the smallest >= H + 4, W + 4 that
// are multiples of 4 without prime factors above 5. With periodised Morlet wavelets psi_(j, a) and
// a Gaussian phi of standard deviation 1.6 (all defined in features.md), x the torus and * the
// circular convolution,
//   channel 0              x * phi
//   channel 1 + 8j + a     |x * psi_(j, a)| * phi                    j = 0, 1   a = 0 … 7
//   channel 17 + 8a + b    ||x * psi_(0, a)| * psi_(1, b)| * phi     a, b = 0 … 7
// each at the pixels 2, 6, 10, … of the image, H/4 x W/4 of them (rounded down). Moduli after psi_1
// are evaluated at every other pixel of the torus.
class Scattering {
 public:
  static constexpr std::size_t kChannels = 81;

  // Throws kInvalidDpConfig unless both lengths are in [8, 512].
  Scattering(std::size_t height, std::size_t width);
  ~Scattering();
  Scattering(Scattering&&) noexcept;

  std::size_t size() const noexcept;       // of a record's features: 81 (H/4) (W/4)
  std::size_t positions() const noexcept;  // of a channel: (H/4) (W/4)

  // x: records images, row-major. out: records x size(), channel by channel, row-major. Binary32
  // arithmetic without fused operations: the bits are the same on every processor, for any number
  // of threads and however records are divided into calls. Throws kInvalidInput for other sizes.
  void apply(std::span<const float> x, std::size_t records, std::span<float> out,
             int threads) const;

  struct Plan;  // private: scattering_impl.h

 private:
  std::unique_ptr<Plan> plan_;
};

}  // namespace discreet::data
