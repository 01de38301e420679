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

}  // namespace discreet::numerics
#endif
