#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/mechanism/clip/ghost/ghost_impl.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

// Proof of every bound: ghost.md.
namespace discreet::mechanism {
namespace {

using numerics::next_up;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kCancellation = 0x1p-12;    // the least norm, as a share of the terms
constexpr double kLargestBinary32 = 0x1p60;  // of a row that is multiplied in binary32
constexpr std::size_t kTileElements = 1 << 16;

// A product that is 0 because a factor is needs no step; 0 times an infinity is none of these.
double product_upper(double a, double b) {
  const double v = a * b;
  return (a == 0 || b == 0) && v == 0 ? 0 : next_up(v);
}
double sum_upper(double a, double b) { return b == 0 ? a : next_up(a + b); }

// gamma_m = m u / (1 - m u) of binary64, from above, for m below 2^40.
double gamma_upper(double m) { return m * 0x1.001p-53; }

double floored(double norm, double terms) {
  return std::max(norm, product_upper(terms, kCancellation));
}

// 2^-e for a largest value in [2^e, 2^(e+1)); only exponents that keep both powers normal.
int exponent_of(double largest) {
  const int biased = static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52 & 0x7ff);
  return std::clamp(biased - 1023, -1000, 1000);
}
double power_of_two(int e) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + e) << 52);
}

// x * 2^e from above, in two steps that cannot overflow before the result does.
double scaled_upper(double x, int e) {
  if (x == 0) return 0;
  const int half = e / 2;
  return next_up(x * power_of_two(half) * power_of_two(e - half));
}

// The norm from above: NaN or +infinity if a value is not finite.
double row_norm(const double* row, std::size_t n) {
  return numerics::norm_l2_upper(std::span(row, n));
}
double row_norm(const float* row, std::size_t n) {
  if (n > kernels::kMostMeasured) return numerics::norm_l2_upper(std::span(row, n));
  double norm = 0;
  kernels::norms_from_above(&row, 1, n, &norm);
  return norm;
}

// The norms of `rows` rows, scaled by 2^-exponent of the largest: of binary64 alone, whose products
// could leave the range.
template <class Real>
int row_norms(const Real* data, std::size_t rows, std::size_t columns, std::vector<double>& out) {
  out.resize(rows);
  double largest = 0;
  for (std::size_t t = 0; t < rows; ++t) {
    out[t] = row_norm(data + t * columns, columns);
    largest = std::max(largest, out[t]);
  }
  if (std::is_same_v<Real, float> || largest == 0 || largest == kInfinity) return 0;
  const int e = exponent_of(largest);
  for (double& norm : out) norm = norm == 0 ? 0 : next_up(norm * power_of_two(-e));
  return e;
}

// ||sum_t g_t a_t^T||^2 = sum_{t,s} (a_t . a_s) (g_t . g_s), by the symmetry of both factors.
template <class Real>
double gram_norm(const Rows<Real>& g, std::size_t outputs, const Rows<Real>& a, std::size_t inputs,
                 std::size_t positions, double terms, NormScratch<Real>& scratch) {
  const auto turned = [](Rows<Real> rows) {
    std::swap(rows.row_stride, rows.column_stride);
    return rows;
  };
  const std::size_t block = std::max<std::size_t>(1, kTileElements / positions);
  double total = 0, additions = 0;
  for (std::size_t t = 0; t < positions; t += block) {
    const std::size_t rows = std::min(block, positions - t), columns = positions - t;
    const auto products = [&](const Rows<Real>& of, std::size_t length, std::vector<double>& tile) {
      Rows<Real> from = turned(of);
      from.data += t * of.row_stride;
      tile.assign(rows * columns, 0.0);
      add_outer<double>(from, rows, from, columns, length, 256, tile.data(), columns, false,
                        scratch.outer);
    };
    products(a, inputs, scratch.tile);
    products(g, outputs, scratch.other_tile);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto row = [&](const std::vector<double>& tile, std::size_t first, std::size_t last) {
        return std::span(tile).subspan(r * columns + first, last - first);
      };
      total += numerics::dot(row(scratch.tile, r, r + 1), row(scratch.other_tile, r, r + 1));
      total += 2 * numerics::dot(row(scratch.tile, r + 1, columns),
                                 row(scratch.other_tile, r + 1, columns));
      additions += 2;
    }
  }
  const double length = static_cast<double>(inputs + outputs);
  const double m = length + length / 256 + additions + 32;
  const double error = next_up(next_up(terms * terms) * gamma_upper(m));
  return next_up(std::sqrt(next_up(std::max(total, 0.0) + error)));
}

// The same from the gradient itself, a tile of it at a time.
template <class Real>
double direct_norm(const Rows<Real>& g, std::size_t outputs, const Rows<Real>& a,
                   std::size_t inputs, std::size_t positions, double terms,
                   NormScratch<Real>& scratch) {
  const std::size_t block = std::max<std::size_t>(1, kTileElements / inputs);
  double norm = 0;
  for (std::size_t o = 0; o < outputs; o += block) {
    const std::size_t rows = std::min(block, outputs - o);
    Rows<Real> from = g;
    from.data += o * g.column_stride;
    scratch.tile.assign(rows * inputs, 0.0);
    add_outer<double>(from, rows, a, inputs, positions, 256, scratch.tile.data(), inputs, false,
                      scratch.outer);
    norm = hypotenuse_upper(norm, numerics::norm_l2_upper(scratch.tile));
  }
  const double m = static_cast<double>(positions);
  return sum_upper(norm, next_up(terms * gamma_upper(m + m / 256 + 8)));
}

// The weight that sees inputs a_t and output gradients g_t, both [positions][columns].
template <class Real>
Bound weight_bound(const Real* g, std::size_t outputs, const Real* a, std::size_t inputs,
                   std::size_t positions, NormScratch<Real>& scratch) {
  const int g_exponent = row_norms(g, positions, outputs, scratch.x_norms);
  const int a_exponent = row_norms(a, positions, inputs, scratch.y_norms);
  double terms = 0;
  for (std::size_t t = 0; t < positions; ++t)
    terms = sum_upper(terms, product_upper(scratch.x_norms[t], scratch.y_norms[t]));
  if (terms == 0) return {};
  // Such activations times a small scale would lose bits below the range of binary64.
  if (!(terms < kInfinity) || a_exponent > 900) return {kInfinity, kInfinity};
  const int exponent = g_exponent + a_exponent;
  double norm = terms;
  if (positions > 1) {
    const Rows<Real> g_rows{g, outputs, 1, nullptr, power_of_two(-g_exponent)};
    const Rows<Real> a_rows{a, inputs, 1, nullptr, power_of_two(-a_exponent)};
    const auto wide = [](std::size_t n) { return static_cast<double>(n); };
    const bool gram =
        wide(positions) * (wide(inputs) + wide(outputs)) < 2 * wide(inputs) * wide(outputs);
    norm = (gram ? gram_norm<Real> : direct_norm<Real>)(g_rows, outputs, a_rows, inputs, positions,
                                                        terms, scratch);
    // Scaled elements and the products of the Gram form may have lost what is below 2^-1074.
    if (!std::is_same_v<Real, float>) norm = next_up(norm + 0x1p-480);
    norm = floored(std::min(norm, terms), terms);
  }
  return {scaled_upper(norm, exponent), scaled_upper(terms, exponent)};
}

// A product that is 0 only if a factor is.
double product(double a, double b) {
  const double v = a * b;
  return v == 0 && a != 0 && b != 0 ? std::numeric_limits<double>::denorm_min() : v;
}

// sum_t v_t, elementwise, of a vector with d elements; term(t, j) is exact, or a product.
template <class Real, class Term>
Bound column_bound(std::size_t positions, std::size_t d, NormScratch<Real>& scratch, Term term) {
  std::vector<double>&total = scratch.tile, &size = scratch.other_tile;
  total.assign(d, 0.0);
  size.assign(d, 0.0);
  for (std::size_t t = 0; t < positions; ++t)
    for (std::size_t j = 0; j < d; ++j) {
      const double v = term(t, j);
      total[j] += v;
      size[j] += std::fabs(v);
    }
  const double m = gamma_upper(static_cast<double>(positions) + 4);
  const double norm = numerics::norm_l2_upper(total);
  const double computed = numerics::norm_l2_upper(size);
  if (computed == 0) return {};
  // Products of two numbers may have lost what is below 2^-1074.
  const double lost = 0x1p-1074 * static_cast<double>(positions) * static_cast<double>(d);
  const double terms = next_up(next_up(computed + computed * m) + lost);
  if (!std::isfinite(terms) || !std::isfinite(norm)) return {kInfinity, kInfinity};
  return {floored(next_up(next_up(norm + lost) + next_up(terms * m)), terms), terms};
}

template <class Real>
std::array<Bound, 2> bounds(const ModelLayout& layout, const DensePass<Real>& pass, std::size_t i,
                            NormScratch<Real>& scratch, bool& wide) {
  const auto& shape = layout.tensors()[pass.weight].shape;
  const std::size_t outputs = shape[0], inputs = shape[1], positions = pass.positions;
  const Real* g = pass.output_gradients.data() + i * positions * outputs;
  const Real* a = pass.activations.data() + i * positions * inputs;
  std::array<Bound, 2> out;
  if (layout.tensors()[pass.weight].is_private()) {
    out[0] = weight_bound(g, outputs, a, inputs, positions, scratch);
    wide = positions > 1 || scratch.y_norms[0] > kLargestBinary32;
  }
  if (!pass.bias || !layout.tensors()[*pass.bias].is_private()) return out;
  if (positions == 1) {
    // The norm of g. In binary32 it was measured for the weight, unscaled.
    const bool measured = std::is_same_v<Real, float> && layout.tensors()[pass.weight].is_private();
    const double norm = measured ? scratch.x_norms[0] : row_norm(g, outputs);
    out[1] = {norm, norm};
  } else {
    out[1] = column_bound(positions, outputs, scratch, [&](std::size_t t, std::size_t j) {
      return static_cast<double>(g[t * outputs + j]);
    });
  }
  return out;
}

template <class Real>
std::array<Bound, 2> bounds(const ModelLayout& layout, const ConvolutionPass<Real>& pass,
                            std::size_t i, NormScratch<Real>& scratch, bool&) {
  const ConvolutionShape shape = convolution_shape(layout, pass);
  const std::size_t positions = shape.positions(), outputs = shape.outputs;
  const Real* g = pass.output_gradients.data() + i * pass.groups * outputs * positions;
  std::array<Bound, 2> out;
  for (std::size_t q = 0; layout.tensors()[pass.weight].is_private() && q < pass.groups; ++q) {
    unfold(pass, shape, i, q, scratch.unfolded);
    scratch.transposed.resize(positions * outputs);
    for (std::size_t o = 0; o < outputs; ++o)
      for (std::size_t t = 0; t < positions; ++t)
        scratch.transposed[t * outputs + o] = g[(q * outputs + o) * positions + t];
    const Bound group = weight_bound(scratch.transposed.data(), outputs, scratch.unfolded.data(),
                                     shape.inputs(), positions, scratch);
    out[0].norm = hypotenuse_upper(out[0].norm, group.norm);
    out[0].terms = hypotenuse_upper(out[0].terms, group.terms);
  }
  if (pass.bias && layout.tensors()[*pass.bias].is_private())
    out[1] = column_bound(
        positions, outputs * pass.groups, scratch,
        [&](std::size_t t, std::size_t j) { return static_cast<double>(g[j * positions + t]); });
  return out;
}

template <class Real>
std::array<Bound, 2> bounds(const ModelLayout& layout, const EmbeddingPass<Real>& pass,
                            std::size_t i, NormScratch<Real>& scratch, bool&) {
  if (!layout.tensors()[pass.weight].is_private()) return {};
  const std::size_t positions = pass.positions, d = layout.tensors()[pass.weight].shape[1];
  const Real* g = pass.output_gradients.data() + i * positions * d;
  auto& order = scratch.order;
  order.resize(positions);
  for (std::size_t t = 0; t < positions; ++t) order[t] = {pass.tokens[i * positions + t], t};
  std::sort(order.begin(), order.end());
  Bound out;
  for (std::size_t first = 0, last = 0; first < positions; first = last) {
    while (last < positions && order[last].first == order[first].first) ++last;
    const Bound row = column_bound(last - first, d, scratch, [&](std::size_t t, std::size_t j) {
      return static_cast<double>(g[order[first + t].second * d + j]);
    });
    out.norm = hypotenuse_upper(out.norm, row.norm);
    out.terms = hypotenuse_upper(out.terms, row.terms);
  }
  return {out, Bound{}};
}

template <class Real>
std::array<Bound, 2> bounds(const ModelLayout& layout, const NormalisationPass<Real>& pass,
                            std::size_t i, NormScratch<Real>& scratch, bool&) {
  const std::size_t d = layout.elements(pass.scale ? *pass.scale : *pass.shift);
  const std::size_t positions = pass.positions;
  const Real* g = pass.output_gradients.data() + i * positions * d;
  const auto at = [&](std::size_t t, std::size_t j) {
    return pass.channels_first ? j * positions + t : t * d + j;
  };
  std::array<Bound, 2> out;
  if (pass.scale && layout.tensors()[*pass.scale].is_private()) {
    const Real* z = pass.normalised.data() + i * positions * d;
    out[0] = column_bound(positions, d, scratch, [&](std::size_t t, std::size_t j) {
      return product(g[at(t, j)], z[at(t, j)]);
    });
  }
  if (pass.shift && layout.tensors()[*pass.shift].is_private())
    out[1] = column_bound(positions, d, scratch, [&](std::size_t t, std::size_t j) {
      return static_cast<double>(g[at(t, j)]);
    });
  return out;
}

}  // namespace

double hypotenuse_upper(double a, double b) noexcept {
  if (a < b) std::swap(a, b);
  if (b == 0 || a == kInfinity) return a;
  const double ratio = next_up(b / a);
  return next_up(a * next_up(std::sqrt(next_up(1 + next_up(ratio * ratio)))));
}

template <class Real>
void unfold(const ConvolutionPass<Real>& pass, const ConvolutionShape& shape, std::size_t record,
            std::size_t group, std::vector<Real>& out) {
  const std::size_t plane = pass.height * pass.width;
  const Real* from = pass.inputs.data() + (record * pass.groups + group) * shape.channels * plane;
  out.assign(shape.positions() * shape.inputs(), Real{0});
  Real* to = out.data();
  for (std::size_t oh = 0; oh < shape.out_height; ++oh)
    for (std::size_t ow = 0; ow < shape.out_width; ++ow)
      for (std::size_t c = 0; c < shape.channels; ++c)
        for (std::size_t kh = 0; kh < shape.kernel_height; ++kh) {
          // Places before the image wrap around and lie beyond its end like those after it.
          const std::size_t h = oh * pass.stride[0] + kh * pass.dilation[0] - pass.padding[0];
          for (std::size_t kw = 0; kw < shape.kernel_width; ++kw, ++to) {
            const std::size_t w = ow * pass.stride[1] + kw * pass.dilation[1] - pass.padding[1];
            if (h < pass.height && w < pass.width) *to = from[c * plane + h * pass.width + w];
          }
        }
}

template <class Real>
std::array<Bound, 2> record_bounds(const ModelLayout& layout, const LayerPass<Real>& pass,
                                   std::size_t i, NormScratch<Real>& scratch, bool& wide) {
  return std::visit([&](const auto& layer) { return bounds(layout, layer, i, scratch, wide); },
                    pass);
}

template std::array<Bound, 2> record_bounds(const ModelLayout&, const LayerPass<float>&,
                                            std::size_t, NormScratch<float>&, bool&);
template std::array<Bound, 2> record_bounds(const ModelLayout&, const LayerPass<double>&,
                                            std::size_t, NormScratch<double>&, bool&);
template void unfold(const ConvolutionPass<float>&, const ConvolutionShape&, std::size_t,
                     std::size_t, std::vector<float>&);
template void unfold(const ConvolutionPass<double>&, const ConvolutionShape&, std::size_t,
                     std::size_t, std::vector<double>&);

}  // namespace discreet::mechanism
