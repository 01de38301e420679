// Three learners calibrate together and delete together: each keeps its own data, they share four
// numbers. Constants agreed on by looking at data are estimates; nothing here is certified.
#include <discreet/discreet.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

using namespace discreet::unlearning;

// The n-th record of a learner: a fixed sequence, so that every language sees the same.
static std::pair<std::vector<double>, double> record(int learner, int n) {
  const double a = (n * 7 + learner * 3) % 11 / 11.0 - 0.5, b = (n * 5 + learner) % 13 / 13.0 - 0.5;
  return {{a, b}, 2 * a - b};
}

int main() {
  std::vector<std::shared_ptr<PrivacyOdometer>> odometers;
  std::vector<MemoryPair> learners;
  std::vector<int> next(3, 0);
  int interleaving = 0;
  OdometerOptions options;
  options.gamma_learn = 0.25;
  options.gamma_priv = 1;
  for (int i = 0; i < 3; ++i) {
    odometers.push_back(std::make_shared<PrivacyOdometer>(options));
    learners.emplace_back(2, odometers.back());
    for (int n = 0; n < 50; ++n) {
      const auto [x, y] = record(i, next[i]++);
      learners.back().calibrate_step(x, y);
    }
  }

  // The worst of all, so that one N* and one capacity hold for everybody.
  CalibrationStats joint = learners[0].calibrator().finalize(0.25, learners[0].lbfgs_bounds());
  for (const MemoryPair& learner : learners) {
    const Constants own = learner.calibrator().finalize(0.25, learner.lbfgs_bounds()).constants;
    Constants& all = joint.constants;
    all = {std::max(all.G, own.G), std::max(all.D, own.D), std::min(all.c, own.c),
           std::max(all.C, own.C)};
  }
  joint.N_star = std::max<std::uint64_t>(60, sample_complexity(joint.constants, 0.25));

  for (MemoryPair& learner : learners) {
    learner.on_phase([&](Phase, Phase to) { interleaving += to == Phase::kInterleaving; });
    learner.finalize_calibration(joint);
  }
  for (int i = 0; i < 3; ++i) {
    while (!learners[i].ready_to_predict()) {
      const auto [x, y] = record(i, next[i]++);
      learners[i].insert(x, y);
    }
  }
  std::printf("%d learners are interleaving after the same N*\n", interleaving);

  // Somebody whose record every learner has asks to be deleted.
  const std::vector<double> x{0.25, -0.25};
  for (int i = 0; i < 3; ++i) {
    odometers[i]->finalize_with(joint, 100000);
    learners[i].insert(x, 1);
    learners[i].erase(x, 1);
  }
  std::printf("same capacity: %s\n", odometers[0]->m() == odometers[2]->m() ? "yes" : "no");
  std::printf("deletes: %d %d %d\n", int(learners[0].deletes_seen()),
              int(learners[1].deletes_seen()), int(learners[2].deletes_seen()));
  std::printf("guarantee: %s\n", std::string(to_string(odometers[0]->guarantee())).c_str());
  try {
    learners[0].erase(x, 1);
  } catch (const discreet::Error& error) {
    std::printf("again: %s\n", error.sentence().c_str());
  }
}
