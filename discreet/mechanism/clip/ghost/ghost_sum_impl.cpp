#include <array>
#include <type_traits>

#include "discreet/mechanism/clip/ghost/ghost_impl.h"

namespace discreet::mechanism {
namespace {

// Between these bounds nothing that matters underflows or overflows in binary32: ghost.md.
constexpr double kLeastBinary32Clip = 0x1p-20;
constexpr double kLargestBinary32Norm = 0x1p60;  // of what a record adds

template <class Real>
class Adder {
 public:
  Adder(const ModelLayout& layout, const RecordNorms& norms, std::span<const std::uint8_t> wide,
        const ClipPlan& plan, const ClipOptions& options, Target& target)
      : layout_(layout), norms_(norms), wide_(wide), plan_(plan), options_(options), sum_(target) {}

  void operator()(const DensePass<Real>& pass) const {
    const auto& shape = layout_.tensors()[pass.weight].shape;
    const std::size_t outputs = shape[0], inputs = shape[1];
    const std::size_t rows = norms_.records * pass.positions;
    if (layout_.tensors()[pass.weight].is_private()) {
      std::vector<double> narrow(rows), wide(rows);
      const bool fits = fits_binary32(pass.weight);
      bool any_wide = false;
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t i = r / pass.positions;
        const double factor = scale(i, pass.weight);
        const bool is_wide =
            !fits || wide_[i] != 0 || factor * norm(i, pass.weight) > kLargestBinary32Norm;
        (is_wide ? wide : narrow)[r] = factor;
        any_wide |= is_wide && wide[r] != 0;
      }
      const bool first = fits && !any_wide && rows != 0 && sum_.take_unwritten(pass.weight);
      double* const target = sum_.tensor(pass.weight);
      in_shares(
          outputs, cost(rows, inputs, outputs), options_.threads,
          [&](std::size_t begin, std::size_t end) {
            OuterScratch scratch;
            const auto add = [&]<class Product>(Product, const std::vector<double>& factors,
                                                std::size_t run) {
              add_outer<Product>(
                  Rows<Real>{pass.output_gradients.data() + begin, outputs, 1, factors.data()},
                  end - begin, Rows<Real>{pass.activations.data(), inputs}, inputs, rows, run,
                  target + begin * inputs, inputs, first, scratch);
            };
            if constexpr (std::is_same_v<Real, float>)
              if (fits) add(float{}, narrow, options_.binary32_records);
            if (any_wide) add(double{}, wide, 256);
          });
    }
    if (pass.bias)
      add_columns(*pass.bias, outputs, pass.positions,
                  [&](std::size_t i, std::size_t t, std::size_t j) {
                    return double{pass.output_gradients[(i * pass.positions + t) * outputs + j]};
                  });
  }

  void operator()(const ConvolutionPass<Real>& pass) const {
    const ConvolutionShape shape = convolution_shape(layout_, pass);
    const std::size_t positions = shape.positions(), inputs = shape.inputs();
    const std::size_t outputs = shape.outputs, all_outputs = outputs * pass.groups;
    if (layout_.tensors()[pass.weight].is_private()) {
      double* const target = sum_.tensor(pass.weight);
      in_shares(all_outputs, cost(norms_.records * positions, inputs, all_outputs),
                options_.threads, [&](std::size_t begin, std::size_t end) {
                  OuterScratch scratch;
                  std::vector<Real> unfolded;
                  for (std::size_t i = 0; i < norms_.records; ++i) {
                    const double factor = scale(i, pass.weight);
                    if (factor == 0) continue;
                    for (std::size_t o = begin; o < end;) {
                      const std::size_t group = o / outputs;
                      const std::size_t last = std::min(end, (group + 1) * outputs);
                      unfold(pass, shape, i, group, unfolded);
                      const Real* g =
                          pass.output_gradients.data() + (i * all_outputs + o) * positions;
                      add_outer<double>(Rows<Real>{g, 1, positions, nullptr, factor}, last - o,
                                        Rows<Real>{unfolded.data(), inputs}, inputs, positions, 256,
                                        target + o * inputs, inputs, false, scratch);
                      o = last;
                    }
                  }
                });
    }
    if (pass.bias)
      add_columns(*pass.bias, all_outputs, positions,
                  [&](std::size_t i, std::size_t t, std::size_t j) {
                    return double{pass.output_gradients[(i * all_outputs + j) * positions + t]};
                  });
  }

  void operator()(const EmbeddingPass<Real>& pass) const {
    if (!layout_.tensors()[pass.weight].is_private()) return;
    const std::size_t d = layout_.tensors()[pass.weight].shape[1];
    double* const target = sum_.tensor(pass.weight);
    in_shares(d, cost(norms_.records * pass.positions, d, 1), options_.threads,
              [&](std::size_t begin, std::size_t end) {
                for (std::size_t r = 0; r < pass.tokens.size(); ++r) {
                  const double factor = scale(r / pass.positions, pass.weight);
                  if (factor == 0) continue;
                  double* row = target + static_cast<std::size_t>(pass.tokens[r]) * d;
                  for (std::size_t j = begin; j < end; ++j)
                    row[j] += factor * double{pass.output_gradients[r * d + j]};
                }
              });
  }

  void operator()(const NormalisationPass<Real>& pass) const {
    const std::size_t d = layout_.elements(pass.scale ? *pass.scale : *pass.shift);
    const auto at = [&](std::size_t i, std::size_t t, std::size_t j) {
      return i * pass.positions * d + (pass.channels_first ? j * pass.positions + t : t * d + j);
    };
    if (pass.scale)
      add_columns(*pass.scale, d, pass.positions, [&](std::size_t i, std::size_t t, std::size_t j) {
        return double{pass.output_gradients[at(i, t, j)]} * double{pass.normalised[at(i, t, j)]};
      });
    if (pass.shift)
      add_columns(*pass.shift, d, pass.positions, [&](std::size_t i, std::size_t t, std::size_t j) {
        return double{pass.output_gradients[at(i, t, j)]};
      });
  }

 private:
  double scale(std::size_t record, std::size_t tensor) const {
    return norms_.scale(record, plan_.partition.part_of[tensor]);
  }

  double norm(std::size_t record, std::size_t tensor) const {
    return norms_.norm(record, plan_.partition.part_of[tensor]);
  }

  static double cost(std::size_t rows, std::size_t inputs, std::size_t outputs) {
    return static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs);
  }

  bool fits_binary32(std::size_t tensor) const {
    if (std::is_same_v<Real, double> || options_.binary32_records == 0) return false;
    double clip = plan_.clip[plan_.partition.part_of[tensor]];
    if (plan_.flat_clip) clip = std::min(clip, *plan_.flat_clip);
    return clip >= kLeastBinary32Clip;
  }

  // tensor[j] += sum over records and positions of scale * term(record, position, j).
  template <class Term>
  void add_columns(std::size_t tensor, std::size_t d, std::size_t positions, Term term) const {
    if (!layout_.tensors()[tensor].is_private()) return;
    double* const target = sum_.tensor(tensor);
    // Widened, multiplied, added and stored, one at a time.
    in_shares(d, 4 * cost(norms_.records * positions, d, 1), options_.threads,
              [&](std::size_t begin, std::size_t end) {
                for (std::size_t i = 0; i < norms_.records; ++i) {
                  const double factor = scale(i, tensor);
                  if (factor == 0) continue;
                  for (std::size_t t = 0; t < positions; ++t)
                    for (std::size_t j = begin; j < end; ++j) target[j] += factor * term(i, t, j);
                }
              });
  }

  const ModelLayout& layout_;
  const RecordNorms& norms_;
  const std::span<const std::uint8_t> wide_;
  const ClipPlan& plan_;
  const ClipOptions& options_;
  Target& sum_;
};

}  // namespace

template <class Real>
void add_scaled(const ModelLayout& layout, const LayerPass<Real>& pass, const RecordNorms& norms,
                std::span<const std::uint8_t> wide, const ClipPlan& plan,
                const ClipOptions& options, Target& target) {
  std::visit(Adder<Real>(layout, norms, wide, plan, options, target), pass);
}

template void add_scaled(const ModelLayout&, const LayerPass<float>&, const RecordNorms&,
                         std::span<const std::uint8_t>, const ClipPlan&, const ClipOptions&,
                         Target&);
template void add_scaled(const ModelLayout&, const LayerPass<double>&, const RecordNorms&,
                         std::span<const std::uint8_t>, const ClipPlan&, const ClipOptions&,
                         Target&);

}  // namespace discreet::mechanism
