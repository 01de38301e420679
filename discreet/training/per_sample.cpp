#include "discreet/training/per_sample.h"

#include <algorithm>

namespace discreet::training {

void for_each_explicit(const BackwardPass<float>& pass, const ModelLayout& layout,
                       const std::function<void(const PerSampleGradients<double>&, bool)>& visit) {
  constexpr std::uint64_t kMost = std::uint64_t{8} << 20;  // numbers at a time
  const std::size_t step =
      std::max<std::uint64_t>(1, kMost / std::max<std::uint64_t>(1, layout.parameters()));
  std::vector<std::vector<double>> values(layout.size());
  std::size_t begin = 0;
  do {
    const std::size_t records = std::min(step, pass.records - begin);
    for (const auto& layer : pass.layers) {
      const auto& dense = std::get<DensePass<float>>(layer);
      const std::size_t outputs = layout.tensors()[dense.weight].shape[0];
      const std::size_t inputs = layout.tensors()[dense.weight].shape[1];
      std::vector<double>& weight = values[dense.weight];
      weight.resize(records * outputs * inputs);
      if (dense.bias) values[*dense.bias].resize(records * outputs);
      for (std::size_t i = 0; i < records; ++i) {
        const auto x = dense.activations.subspan((begin + i) * inputs, inputs);
        const auto g = dense.output_gradients.subspan((begin + i) * outputs, outputs);
        double* to = weight.data() + i * outputs * inputs;
        for (std::size_t o = 0; o < outputs; ++o)
          for (const float input : x)
            *to++ = static_cast<double>(g[o]) * static_cast<double>(input);
        if (dense.bias)
          std::ranges::copy(g,
                            values[*dense.bias].begin() + static_cast<std::ptrdiff_t>(i * outputs));
      }
    }
    PerSampleGradients<double> out{records, {}};
    for (const auto& tensor : values) out.tensors.emplace_back(tensor);
    begin += records;
    visit(out, begin == pass.records);
  } while (begin < pass.records);
}

}  // namespace discreet::training
