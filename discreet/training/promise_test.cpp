// The promise (C, z, k): whichever steps and runs sample a contribution, it is used k times at
// most, and its uses together are no more than one Gaussian release of multiplier z.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "discreet/admission/policy_testing.h"
#include "discreet/admission/resolver.h"
#include "discreet/admission/uses.h"
#include "discreet/mechanism/route/route.h"

namespace discreet::training {
namespace {

using admission::UseStore;

// A corpus of one contribution, and the runs that sample it.
class Sampled {
 public:
  Sampled() {
    const ModelLayout layout({{.name = "a.weight", .shape = {4, 4}},
                              {.name = "b.weight", .shape = {4, 4}},
                              {.name = "c.weight", .shape = {4, 4}},
                              {.name = "d.weight", .shape = {4, 4}}});
    resolution_ = admission::resolve(admission::testing::policy(), descriptor_, layout);
    mechanism::Router router({{resolution_.plan}, {}}, layout);
    EXPECT_TRUE(router.charge(1e-3, 1. / 64));
    // What a use adds at most, in units of the noise, the rounding of the sum included.
    const double largest = *resolution_.plan.flat_clip;
    const double stddev = resolution_.plan.blocks[0].stddev;
    shift_ = ((1 - router.theta(0)) * largest + 1e-3 * largest) / stddev;
  }

  std::uint32_t cap() const { return resolution_.most_uses; }
  // Whether the step may use it. Its releases are counted, but only once if bits are repeated.
  bool sample(UseStore& store, std::uint8_t run, std::uint64_t step, bool crashes = false) {
    const UseStore::Claim claim{Digest{7}, 1, cap()};
    const bool granted = store.reserve(Digest{run}, step, std::span(&claim, 1))[0] != 0;
    if (granted && !crashes) used_.insert({run, step});
    return granted;
  }
  std::size_t used() const { return used_.size(); }
  // mu of Gaussian DP of all uses together, which must stay at most 1 / z.
  double mu() const { return std::sqrt(static_cast<double>(used())) * shift_; }
  double promised() const { return 1 / descriptor_.noise_multiplier.nearest(); }

 private:
  admission::Descriptor descriptor_ = admission::testing::clinical();
  admission::Resolution resolution_{};
  double shift_ = 0;
  std::set<std::pair<std::uint8_t, std::uint64_t>> used_;
};

class Promise : public ::testing::Test {
 protected:
  Promise() { std::filesystem::remove(path_); }
  ~Promise() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                (std::string("promise-") + std::to_string(::getpid()) + ".uses");
};

TEST_F(Promise, HoldsForEveryPatternOfUses) {
  // In one run at every step; one use per run; two runs in turns; repeated steps; at random.
  const auto patterns = std::vector<std::function<std::pair<std::uint8_t, std::uint64_t>(int)>>{
      [](int i) { return std::pair<std::uint8_t, std::uint64_t>(1, i); },
      [](int i) { return std::pair<std::uint8_t, std::uint64_t>(i, 0); },
      [](int i) { return std::pair<std::uint8_t, std::uint64_t>(i % 2, i / 2); },
      [](int i) { return std::pair<std::uint8_t, std::uint64_t>(3, i / 2); },
      [](int i) { return std::pair<std::uint8_t, std::uint64_t>(i * 7 % 5, i * 31 % 17); }};
  for (const auto& pattern : patterns) {
    std::filesystem::remove(path_);
    Sampled contribution;
    for (int i = 0; i < 45; ++i) {
      UseStore store(path_);  // opened again by every process
      const auto [run, step] = pattern(i);
      contribution.sample(store, run, step);
    }
    EXPECT_EQ(contribution.used(), contribution.cap());
    EXPECT_LE(contribution.mu(), contribution.promised());
    EXPECT_GT(contribution.mu(), .99 * contribution.promised()) << "and not by waste";
  }
}

TEST_F(Promise, CountsAUseThatACrashCameBefore) {
  Sampled contribution;
  for (std::uint64_t step = 0; step < 5; ++step) {
    UseStore store(path_);
    EXPECT_TRUE(contribution.sample(store, 1, step, step < 4));  // dies between the two, four times
  }
  UseStore store(path_);
  for (std::uint64_t step = 10; step < 100; ++step) contribution.sample(store, 2, step);
  EXPECT_EQ(contribution.used(), contribution.cap() - 4);
  EXPECT_FALSE(contribution.sample(store, 3, 0)) << "use k + 1, of another run";
}

}  // namespace
}  // namespace discreet::training
