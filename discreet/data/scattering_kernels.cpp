#include <algorithm>
#include <utility>

#include "discreet/data/scattering_impl.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/data/scattering_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::data::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, kLanes>;
using V = hn::Vec<Tag>;

HWY_INLINE V Load(const float* x) { return hn::LoadU(Tag(), x); }
HWY_INLINE void Store(V v, float* x) { hn::StoreU(v, Tag(), x); }
HWY_INLINE V Set(float x) { return hn::Set(Tag(), x); }

struct Complex {
  float *re, *im;
  Complex at(std::size_t i) const { return {re + i, im + i}; }
};

struct Value {
  V re, im;
};
HWY_INLINE Value Get(Complex x, std::size_t i) { return {Load(x.re + i), Load(x.im + i)}; }
HWY_INLINE void Put(Value v, Complex x, std::size_t i) {
  Store(v.re, x.re + i);
  Store(v.im, x.im + i);
}
HWY_INLINE Value Add(Value a, Value b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE Value Sub(Value a, Value b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
// a times c + is.
HWY_INLINE Value Turn(Value a, V c, V s) {
  return {hn::Sub(hn::Mul(a.re, c), hn::Mul(a.im, s)), hn::Add(hn::Mul(a.re, s), hn::Mul(a.im, c))};
}
// a times i.
HWY_INLINE Value TurnQuarter(Value a) { return {hn::Neg(a.im), a.re}; }

// One pass of the inverse transform (exponent +) from x to y on points of `inner` floats.
HWY_INLINE void Pass(const FftPass& pass, Complex x, Complex y, std::size_t inner) {
  const std::size_t lanes = hn::Lanes(Tag());
  const std::size_t r = pass.radix, m = pass.groups, run = pass.stride * inner;
  for (std::size_t p = 0; p < m; ++p) {
    const float* const c = pass.cosine.data() + p * r;
    const float* const s = pass.sine.data() + p * r;
    const Complex to = y.at(run * r * p);
    if (r == 4) {
      const V c1 = Set(c[1]), s1 = Set(s[1]), c2 = Set(c[2]), s2 = Set(s[2]), c3 = Set(c[3]),
              s3 = Set(s[3]);
      const Complex x0 = x.at(run * p), x1 = x.at(run * (p + m)), x2 = x.at(run * (p + 2 * m)),
                    x3 = x.at(run * (p + 3 * m));
      const Complex y1 = to.at(run), y2 = to.at(2 * run), y3 = to.at(3 * run);
      for (std::size_t q = 0; q < run; q += lanes) {
        const Value a = Get(x0, q), b = Get(x1, q), d = Get(x2, q), e = Get(x3, q);
        const Value even = Add(a, d), odd = Add(b, e);
        const Value difference = Sub(a, d), turned = TurnQuarter(Sub(b, e));
        Put(Add(even, odd), to, q);
        Put(Turn(Add(difference, turned), c1, s1), y1, q);
        Put(Turn(Sub(even, odd), c2, s2), y2, q);
        Put(Turn(Sub(difference, turned), c3, s3), y3, q);
      }
    } else if (r == 2) {
      const V c1 = Set(c[1]), s1 = Set(s[1]);
      const Complex x0 = x.at(run * p), x1 = x.at(run * (p + m)), y1 = to.at(run);
      for (std::size_t q = 0; q < run; q += lanes) {
        const Value a = Get(x0, q), b = Get(x1, q);
        Put(Add(a, b), to, q);
        Put(Turn(Sub(a, b), c1, s1), y1, q);
      }
    } else {
      // Radix 3 or 5, term by term: the r-th roots of 1 are in the last row of tables.
      const float* const rc = pass.cosine.data() + m * r;
      const float* const rs = pass.sine.data() + m * r;
      for (std::size_t j = 0; j < r; ++j)
        for (std::size_t q = 0; q < run; q += lanes) {
          Value sum = Get(x, run * p + q);
          for (std::size_t k = 1; k < r; ++k) {
            const std::size_t root = j * k % r;
            sum = Add(sum, Turn(Get(x, run * (p + m * k) + q), Set(rc[root]), Set(rs[root])));
          }
          Put(Turn(sum, Set(c[j]), Set(s[j])), to, run * j + q);
        }
    }
  }
}

// x becomes its inverse transform in two dimensions, times the number of pixels; `other` is room.
HWY_INLINE void Inverse(const Plane& plane, Complex& x, Complex& other) {
  const std::size_t row = plane.width * kLanes;
  for (const FftPass& pass : plane.rows) {
    for (std::size_t i = 0; i < plane.height; ++i)
      Pass(pass, x.at(i * row), other.at(i * row), kLanes);
    std::swap(x, other);
  }
  for (const FftPass& pass : plane.columns) {
    Pass(pass, x, other, row);
    std::swap(x, other);
  }
}

HWY_INLINE void Modulus(Complex x, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += hn::Lanes(Tag())) {
    const Value v = Get(x, i);
    Store(hn::Sqrt(hn::Add(hn::Mul(v.re, v.re), hn::Mul(v.im, v.im))), out + i);
  }
}

// out[i] = sum_k matrix[i][k] x[k], elements of `inner` floats.
HWY_INLINE void Contract(const float* matrix, std::size_t rows, std::size_t terms, const float* x,
                         float* out, std::size_t inner) {
  const std::size_t lanes = hn::Lanes(Tag());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t q = 0; q < inner; q += lanes) {
      V sum = hn::Zero(Tag());
      for (std::size_t k = 0; k < terms; ++k) {
        const float weight = matrix[i * terms + k];
        if (weight != 0) sum = hn::Add(sum, hn::Mul(Set(weight), Load(x + k * inner + q)));
      }
      Store(sum, out + i * inner + q);
    }
}

// The average of u by phi, at the pixels wanted.
HWY_INLINE void Average(const Scattering::Plan& plan, const Plane& plane, const float* u,
                        float* room, float* out) {
  Contract(plane.tall.data(), plan.out_height, plane.height, u, room, plane.width * kLanes);
  for (std::size_t i = 0; i < plan.out_height; ++i)
    Contract(plane.wide.data(), plan.out_width, plane.width, room + i * plane.width * kLanes,
             out + i * plan.out_width * kLanes, kLanes);
}

// The spectrum times a wavelet's.
HWY_INLINE void Filter(Complex spectrum, const std::vector<float>& wavelet, Complex out) {
  for (std::size_t i = 0; i < wavelet.size(); ++i) {
    const V w = Set(wavelet[i]);
    for (std::size_t q = i * kLanes; q < (i + 1) * kLanes; q += hn::Lanes(Tag())) {
      const Value v = Get(spectrum, q);
      Put({hn::Mul(w, v.re), hn::Mul(w, v.im)}, out, q);
    }
  }
}

// The spectrum times a wavelet's, folded onto the half plane: the spectrum of every other pixel.
HWY_INLINE void Fold(const Scattering::Plan& plan, Complex spectrum, const float* wavelet,
                     Complex out) {
  const std::size_t lanes = hn::Lanes(Tag());
  const std::size_t h = plan.half.height, w = plan.half.width;
  for (std::size_t i = 0; i < h; ++i)
    for (std::size_t k = 0; k < w; ++k) {
      const std::size_t a = i * 2 * w + k, b = a + w, c = (i + h) * 2 * w + k, d = c + w;
      const V fa = Set(wavelet[a]), fb = Set(wavelet[b]), fc = Set(wavelet[c]),
              fd = Set(wavelet[d]);
      for (std::size_t q = 0; q < kLanes; q += lanes) {
        const auto fold = [&](const float* x) HWY_ATTR {
          return hn::Add(
              hn::Add(hn::Mul(fa, Load(x + a * kLanes + q)), hn::Mul(fb, Load(x + b * kLanes + q))),
              hn::Add(hn::Mul(fc, Load(x + c * kLanes + q)),
                      hn::Mul(fd, Load(x + d * kLanes + q))));
        };
        Put({fold(spectrum.re), fold(spectrum.im)}, out, (i * w + k) * kLanes + q);
      }
    }
}

// x: the inverse transform of a + ib, both real. first, second: the (forward) transforms of a and
// b.
HWY_INLINE void Separate(const Plane& plane, Complex x, Complex first, Complex second) {
  const V half = Set(0.5f);
  for (std::size_t i = 0; i < plane.height; ++i)
    for (std::size_t k = 0; k < plane.width; ++k) {
      const std::size_t here = (i * plane.width + k) * kLanes;
      const std::size_t mirror =
          ((plane.height - i) % plane.height * plane.width + (plane.width - k) % plane.width) *
          kLanes;
      for (std::size_t q = 0; q < kLanes; q += hn::Lanes(Tag())) {
        const Value z = Get(x, here + q), m = Get(x, mirror + q);
        Put({hn::Mul(half, hn::Add(z.re, m.re)), hn::Mul(half, hn::Sub(m.im, z.im))}, first,
            here + q);
        Put({hn::Mul(half, hn::Add(z.im, m.im)), hn::Mul(half, hn::Sub(z.re, m.re))}, second,
            here + q);
      }
    }
}

void Scatter(const Scattering::Plan& plan, const float* torus, float* out, float* scratch) {
  const Plane &full = plan.full, &half = plan.half;
  const std::size_t count = full.pixels() * kLanes;
  const std::size_t channel = plan.out_height * plan.out_width * kLanes;
  const auto take = [&]() {
    const Complex room{scratch, scratch + count};
    scratch += 2 * count;
    return room;
  };
  Complex x = take(), z = take(), moduli = take();
  const Complex image = take(), first = take(), second = take(), rest = take();
  float *const u = rest.re, *const room = rest.im;

  Average(plan, full, torus, room, out);
  std::copy_n(torus, count, x.re);
  std::fill_n(x.im, count, 0.0f);
  Inverse(full, x, z);
  Separate(full, x, image, second);

  const auto on_half = [&](Complex spectrum, std::size_t angle, std::size_t to) HWY_ATTR {
    Fold(plan, spectrum, plan.wavelets[1][angle].data(), x);
    Inverse(half, x, z);
    Modulus(x, u, half.pixels() * kLanes);
    Average(plan, half, u, room, out + to * channel);
  };
  for (std::size_t a = 0; a < kAngles; ++a) on_half(image, a, 9 + a);

  // Angles by pairs: two real planes are one complex transform.
  for (std::size_t a = 0; a < kAngles; a += 2) {
    for (std::size_t k = 0; k < 2; ++k) {
      Filter(image, plan.wavelets[0][a + k], x);
      Inverse(full, x, z);
      float* const modulus = k == 0 ? moduli.re : moduli.im;
      Modulus(x, modulus, count);
      Average(plan, full, modulus, room, out + (1 + a + k) * channel);
    }
    Inverse(full, moduli, x);
    Separate(full, moduli, first, second);
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t b = 0; b < kAngles; ++b)
        on_half(k == 0 ? first : second, b, 17 + (a + k) * kAngles + b);
  }
}

}  // namespace discreet::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::data {
HWY_EXPORT(Scatter);
void scatter(const Scattering::Plan& plan, const float* torus, float* out, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Scatter)(plan, torus, out, scratch);
}
}  // namespace discreet::data
#endif
