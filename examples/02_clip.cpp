// Clipping the gradients of your own training loop: logistic regression with four weights.
#include <cmath>
#include <cstdio>
#include <vector>

#include "discreet/discreet.h"

using namespace discreet;
using namespace discreet::mechanism;
using discreet::random::Generator;

int main() {
  constexpr std::size_t kRecords = 8;
  constexpr double kClip = 0.5, kSigma = 1.0, kRate = 2.0;
  const ModelLayout layout({{.name = "weight", .shape = {3}}, {.name = "bias"}});
  const ClipPlan plan = clip_plan(layout, Cut::kFlat, kClip);
  const Generator noise(
      discreet::random::Algorithm::kPhilox4x32,  // a private run: Generator::secure
      discreet::random::Key::from_seed(7).derive("noise"));

  double weight[3] = {}, bias = 0;
  for (std::uint64_t step = 0; step < 3; ++step) {
    // The gradient of every record's loss, record by record.
    std::vector<float> d_weight, d_bias;
    for (std::size_t i = 0; i < kRecords; ++i) {
      const double x[3] = {0.5 * static_cast<double>(i % 3), 1 - 0.25 * static_cast<double>(i % 5),
                           static_cast<double>(i) / 8};
      const double label = i % 2 == 0 ? 1 : 0;
      const double score = bias + weight[0] * x[0] + weight[1] * x[1] + weight[2] * x[2];
      const double slope = 1 / (1 + std::exp(-score)) - label;
      for (const double value : x) d_weight.push_back(static_cast<float>(slope * value));
      d_bias.push_back(static_cast<float>(slope));
    }
    // Every record's gradient is clipped to norm 0.5; the sum gets noise and is divided by the
    // declared batch size.
    GradientSum sum(layout);
    const RecordNorms norms = clip_per_sample(
        layout, PerSampleGradients<float>{kRecords, {d_weight, d_bias}}, plan, {}, sum);
    for (std::size_t t = 0; t < layout.size(); ++t)
      add_gaussian(noise, discreet::random::Position::at(step, t), kSigma * kClip, sum.tensor(t));
    for (int j = 0; j < 3; ++j)
      weight[j] -= kRate / kRecords * sum.tensor(0)[static_cast<std::size_t>(j)];
    bias -= kRate / kRecords * sum.tensor(1)[0];
    std::printf(
        "step %d: norm of record 0 %.6f, scaled by %.6f; weights %.6f %.6f %.6f, bias %.6f\n",
        static_cast<int>(step), norms.norm(0, 0), norms.scale(0, 0), weight[0], weight[1],
        weight[2], bias);
  }
}
