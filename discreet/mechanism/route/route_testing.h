#pragma once

#include <optional>
#include <vector>

#include "discreet/mechanism/clip/ghost/ghost_reference_testing.h"
#include "discreet/mechanism/route/route.h"

// A model whose records have classes, with gradients.
namespace discreet::mechanism::route_example {

// Two attention layers (heads along rows, and along columns of the output), experts, a head.
inline ModelLayout model() {
  return ModelLayout({{.name = "a.query", .shape = {8, 6}, .heads = Slices{4, 0}},
                      {.name = "a.query_bias", .shape = {8}, .heads = Slices{4, 0}},
                      {.name = "a.out", .shape = {6, 8}, .heads = Slices{4, 1}},
                      {.name = "b.experts", .shape = {9, 6}, .experts = Slices{3, 0}},
                      {.name = "b.experts_bias", .shape = {9}},
                      {.name = "c.weight", .shape = {3, 6}},
                      {.name = "c.bias", .shape = {3}},
                      {.name = "closed.weight", .shape = {2, 6}}});
}

inline RouteTensor whole(std::uint64_t tensor) { return {tensor, {}}; }
inline RouteTensor part(std::uint64_t tensor, Slices slices, std::vector<std::uint32_t> permitted) {
  return {tensor, {{slices, std::move(permitted)}}};
}

// A layer profile, two masks, and a profile of everything that is not closed; "low" has its own
// noise.
inline Routes routes() {
  const Digest layout = model().hash();
  const auto low = [](double clip, std::vector<RouteTensor> tensors) {
    return RouteBlock{"low", 0.5, clip, std::move(tensors)};
  };
  const auto rest = [](double clip, std::vector<RouteTensor> tensors) {
    return RouteBlock{"default", 2, clip, std::move(tensors)};
  };
  return {{{layout, {rest(1, {whole(5), whole(6)})}, 1.0},
           {layout,
            {low(.1, {part(0, {4, 0}, {1, 2}), part(1, {4, 0}, {1, 2}), part(2, {4, 1}, {0, 3})})},
            {}},
           {layout, {rest(.7, {part(3, {3, 0}, {2}), whole(4)})}, {}},
           {layout,
            {low(.3, {whole(0), whole(1), whole(2)}),
             rest(.4, {whole(3), whole(4), whole(5), whole(6)})},
            .45}},
          Injection::kPerStep};
}

// A microbatch as passes and as per-sample gradients.
template <class Real>
struct Batch {
  explicit Batch(std::size_t records, std::uint64_t seed = 1, std::size_t positions = 1,
                 double size = 1)
      : make(seed) {
    const auto dense = [&](std::size_t weight, std::optional<std::size_t> bias) {
      const auto& shape = layout.tensors()[weight].shape;
      pass.layers.push_back(DensePass<Real>{make.normal(records * positions * shape[1]),
                                            make.normal(records * positions * shape[0], size),
                                            positions, weight, bias});
    };
    pass.records = rows.records = records;
    dense(0, 1);
    dense(2, {});
    dense(3, 4);
    dense(5, 6);
    dense(7, {});
    values.resize(layout.size());
    for (std::size_t r = 0; r < records; ++r) {
      const reference::Gradient g = reference::gradient(layout, pass, r);
      for (std::size_t i = 0; i < layout.size(); ++i)
        for (const long double v : g.values[i]) values[i].push_back(static_cast<Real>(v));
    }
    for (const auto& v : values) rows.tensors.emplace_back(v);
  }
  Batch(const Batch&) = delete;

  std::vector<std::vector<long double>> gradient(std::size_t record) const {
    std::vector<std::vector<long double>> out(layout.size());
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const std::size_t n = layout.elements(i);
      out[i].assign(values[i].begin() + static_cast<std::ptrdiff_t>(record * n),
                    values[i].begin() + static_cast<std::ptrdiff_t>((record + 1) * n));
    }
    return out;
  }

  ModelLayout layout = model();
  reference::Maker<Real> make;
  BackwardPass<Real> pass;
  PerSampleGradients<Real> rows;
  std::vector<std::vector<Real>> values;
};

}  // namespace discreet::mechanism::route_example
