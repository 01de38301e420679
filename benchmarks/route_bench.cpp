// What routing adds to a private step (clip, noise, account) of 256 records: pairs of processor
// times, unrouted and routed, interleaved. One line of JSON per case, for route_bench.py.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <ctime>
#include <random>

#include "discreet/config/config_resolve.h"
#include "discreet/mechanism/step/apply.h"

namespace {

using namespace discreet;
using namespace discreet::mechanism;

constexpr std::size_t kRecords = 256;

double processor_time() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Dense layers in pairs: heads along the rows of the first and the columns of the second.
ModelLayout model(std::size_t layers, std::uint64_t width) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < layers; ++i)
    out.push_back({.name = fmt::format("h.{}.weight", i),
                   .shape = std::vector<std::uint64_t>{width, width},
                   .heads = Slices{8, static_cast<std::uint32_t>(i % 2)}});
  return ModelLayout(std::move(out));
}

// Half of the records reach everything; the others the upper 30% of the layers, or half of the
// heads of every layer.
Routes routes(const ModelLayout& layout, bool heads) {
  const auto plan = [&](std::size_t first, bool masked) {
    RoutePlan out{layout.hash(), {{"default", 1, 1, {}}}, 1.0};
    for (std::size_t i = first; i < layout.size(); ++i) {
      RouteTensor tensor{i, {}};
      if (masked) tensor.masks.push_back({*layout.tensors()[i].heads, {0, 1, 4, 5}});
      out.blocks[0].tensors.push_back(tensor);
    }
    return out;
  };
  return {{plan(0, false), heads ? plan(0, true) : plan(layout.size() * 7 / 10, false)},
          Injection::kPerStep};
}

void compare(const char* name, bool ghost, bool heads, std::size_t layers, std::uint64_t width) {
  const ModelLayout layout = model(layers, width);
  Config config;
  config.privacy.declared_size = 100'000;
  config.privacy.effective_batch_size = kRecords;
  config.privacy.adjacency = accounting::Adjacency::kZeroOut;
  config.privacy.accountant = AccountantKind::kRdp;
  config.privacy.target_epsilon = 8;
  config.privacy.target_steps = 1000;
  config.privacy.clip_ghost = ghost;
  config.privacy = resolve(config.privacy).config;
  const auto mechanism = [&](std::optional<Routes> with) {
    return Mechanism(config, layout, mechanism_streams(config.privacy, random::Key::from_seed(1)),
                     Digest{}, 1, 1, {}, std::move(with));
  };
  Mechanism plain = mechanism(std::nullopt), routed = mechanism(routes(layout, heads));

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> x, g, rows;
  BackwardPass<float> pass{kRecords, {}};
  PerSampleGradients<float> gradients{kRecords, {}};
  const auto draw = [&](std::size_t n) {
    std::vector<float> out(n);
    for (float& v : out) v = normal(random);
    return out;
  };
  for (std::size_t i = 0; i < layers; ++i) {
    if (ghost) {
      x.push_back(draw(kRecords * width));
      g.push_back(draw(kRecords * width));
      pass.layers.push_back(DensePass<float>{x.back(), g.back(), 1, i, {}});
    } else {
      rows.push_back(draw(kRecords * width * width));
      gradients.tensors.emplace_back(rows.back());
    }
  }
  const Microbatch microbatch = ghost ? Microbatch(pass) : Microbatch(gradients);
  std::vector<std::uint32_t> classes(kRecords);
  for (std::size_t i = 0; i < kRecords; ++i) classes[i] = static_cast<std::uint32_t>(i % 2);

  std::vector<double> times[2];
  for (int repetition = 0; repetition < 41; ++repetition)
    for (const int which : {repetition % 2, 1 - repetition % 2}) {
      const double begin = processor_time();
      if (which == 0)
        plain.apply(std::span(&microbatch, 1));
      else
        routed.apply(std::span(&microbatch, 1), std::span(&classes, 1));
      if (repetition > 0) times[which].push_back(processor_time() - begin);
    }
  fmt::print("{{\"name\": \"{}\", \"plain\": [{}], \"routed\": [{}]}}\n", name,
             fmt::join(times[0], ", "), fmt::join(times[1], ", "));
}

}  // namespace

int main() {
  compare("backward passes, layers", true, false, 6, 512);
  compare("backward passes, heads", true, true, 6, 512);
  compare("per-sample gradients, layers", false, false, 6, 256);
  compare("per-sample gradients, heads", false, true, 6, 256);
}
