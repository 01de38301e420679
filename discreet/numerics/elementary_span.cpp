#include <cstring>

#include "discreet/numerics/elementary.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/numerics/elementary_span.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "discreet/numerics/special-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::numerics::HWY_NAMESPACE {

template <class F>
HWY_INLINE void Transform(const double* in, double* out, std::size_t count, F f) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(f(d, hn::LoadU(d, in + i)), d, out + i);
  if (i < count) {
    HWY_ALIGN double rest[hn::MaxLanes(hn::ScalableTag<double>())] = {};
    std::memcpy(rest, in + i, (count - i) * sizeof(double));
    hn::Store(f(d, hn::Load(d, rest)), d, rest);
    std::memcpy(out + i, rest, (count - i) * sizeof(double));
  }
}

#define DISCREET_SPAN(Name)                                                        \
  void Name##Span(const double* in, double* out, std::size_t count) {              \
    Transform(in, out, count, [](auto d, auto x) HWY_ATTR { return Name(d, x); }); \
  }
DISCREET_SPAN(Exp)
DISCREET_SPAN(Expm1)
DISCREET_SPAN(Log)
DISCREET_SPAN(Log1p)
DISCREET_SPAN(Sin)
DISCREET_SPAN(Cos)
DISCREET_SPAN(Erfc)
DISCREET_SPAN(LogErfc)
DISCREET_SPAN(NormalCdf)
#undef DISCREET_SPAN

void SinCosSpan(const double* in, double* sine, double* cosine, std::size_t count) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> s, c;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    SinCos(d, hn::LoadU(d, in + i), s, c);
    hn::StoreU(s, d, sine + i);
    hn::StoreU(c, d, cosine + i);
  }
  if (i < count) {
    HWY_ALIGN double rest[hn::MaxLanes(hn::ScalableTag<double>())] = {};
    std::memcpy(rest, in + i, (count - i) * sizeof(double));
    SinCos(d, hn::Load(d, rest), s, c);
    hn::Store(s, d, rest);
    std::memcpy(sine + i, rest, (count - i) * sizeof(double));
    hn::Store(c, d, rest);
    std::memcpy(cosine + i, rest, (count - i) * sizeof(double));
  }
}

void Atan2Span(const double* y, const double* x, double* out, std::size_t count) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(Atan2(d, hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, out + i);
  if (i < count) {
    HWY_ALIGN double ys[hn::MaxLanes(hn::ScalableTag<double>())] = {};
    HWY_ALIGN double xs[hn::MaxLanes(hn::ScalableTag<double>())] = {};
    std::memcpy(ys, y + i, (count - i) * sizeof(double));
    std::memcpy(xs, x + i, (count - i) * sizeof(double));
    hn::Store(Atan2(d, hn::Load(d, ys), hn::Load(d, xs)), d, ys);
    std::memcpy(out + i, ys, (count - i) * sizeof(double));
  }
}

}  // namespace discreet::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::numerics {

#define DISCREET_SPAN(name, Name)                                              \
  HWY_EXPORT(Name##Span);                                                      \
  void name(std::span<const double> in, std::span<double> out) noexcept {      \
    const std::size_t count = in.size() < out.size() ? in.size() : out.size(); \
    HWY_DYNAMIC_DISPATCH(Name##Span)(in.data(), out.data(), count);            \
  }
DISCREET_SPAN(exp, Exp)
DISCREET_SPAN(expm1, Expm1)
DISCREET_SPAN(log, Log)
DISCREET_SPAN(log1p, Log1p)
DISCREET_SPAN(sin, Sin)
DISCREET_SPAN(cos, Cos)
DISCREET_SPAN(erfc, Erfc)
DISCREET_SPAN(log_erfc, LogErfc)
DISCREET_SPAN(normal_cdf, NormalCdf)
#undef DISCREET_SPAN

HWY_EXPORT(SinCosSpan);
void sin_cos(std::span<const double> in, std::span<double> sine,
             std::span<double> cosine) noexcept {
  HWY_DYNAMIC_DISPATCH(SinCosSpan)(in.data(), sine.data(), cosine.data(), in.size());
}

HWY_EXPORT(Atan2Span);
void atan2(std::span<const double> y, std::span<const double> x, std::span<double> out) noexcept {
  HWY_DYNAMIC_DISPATCH(Atan2Span)(y.data(), x.data(), out.data(), y.size());
}

}  // namespace discreet::numerics
#endif
