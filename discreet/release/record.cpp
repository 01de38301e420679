#include "discreet/release/record.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "discreet/base/error.h"

namespace discreet::release {
namespace {

using namespace ledger;

class Scan {
 public:
  Scan(const State& state, const std::vector<std::string>& runs, std::uint64_t size,
       const std::optional<Digest>& manifest)
      : state_(state),
        runs_(runs.begin(), runs.end()),
        unreleased_(runs_),
        size_(size),
        manifest_(manifest) {}

  void summarised() {
    if (inside_ && position_ < size_) ++out_.summarised;
  }

  void take(const Entry& entry) {
    if (const auto* use = std::get_if<Use>(&entry)) {
      take(*use);
    } else if (const auto* admitted = std::get_if<Admission>(&entry)) {
      by_descriptor_.emplace(admitted->descriptor, admitted->number);
      contributions_.emplace(admitted->number, Contribution{*admitted});
    } else if (const auto* terms = std::get_if<Terms>(&entry)) {
      if (runs_.contains(terms->run) && position_ < size_) take(*terms);
    } else if (std::holds_alternative<EpochEnd>(entry)) {
      inside_ = false;
    } else if (const auto* withdrawal = std::get_if<Withdrawal>(&entry)) {
      take(*withdrawal);
    } else if (const auto* release = std::get_if<Release>(&entry)) {
      if (manifest_ == release->manifest && unreleased_.erase(release->run) > 0 &&
          unreleased_.empty())
        out_.released_at = position_;
    }
  }
  void next() { ++position_; }

  RunRecord finish() {
    std::map<std::string, Posture> found;
    std::set<RunRecord::Route> routes;
    for (const auto& [number, c] : contributions_) {
      if (!c.used) continue;
      const Admission& a = c.admission;
      Posture& p = found[a.admissibility_class];
      p.admissibility_class = a.admissibility_class;
      ++p.contributions;
      p.withdrawn += c.withdrawn;
      p.clip = std::max(p.clip, a.clip);
      if (a.promise == Promise::kWorstCase) {
        p.multiplier = p.multiplier == 0 ? a.multiplier : std::min(p.multiplier, a.multiplier);
        p.uses = std::max(p.uses, a.uses);
      } else {
        p.epsilon = std::max(p.epsilon, a.epsilon);
      }
      p.spend = std::max(p.spend, spend_of(c));
      for (const Bytes& profile : noise_[a.admissibility_class].profiles)
        routes.insert({a.admissibility_class, profile, a.adapter});
    }
    for (auto& [name, p] : found) {
      p.epochs = noise_[name].epochs;
      p.deviation = noise_[name].deviation;
      out_.postures.push_back(p);
    }
    out_.routes.assign(routes.begin(), routes.end());
    out_.has_plans = state_.has_plans();
    if (out_.summarised > 0 && unknown_withdrawal_) {
      if (!out_.withdrawn_at || *unknown_withdrawal_ < *out_.withdrawn_at)
        out_.withdrawn_at = unknown_withdrawal_;
    }
    return std::move(out_);
  }

 private:
  struct Contribution {
    Admission admission;
    std::uint64_t spend = 0;
    bool used = false;       // by the run
    bool withdrawn = false;  // before `size`
  };
  struct Noise {
    std::uint64_t epochs = 0, deviation = 0;
    std::vector<Bytes> profiles;  // none twice; few
  };
  struct DigestHash {
    std::size_t operator()(const Digest& digest) const noexcept {
      std::size_t hash = 0;
      for (std::size_t i = 0; i < sizeof hash; ++i) hash = hash << 8 | digest[i];
      return hash;
    }
  };

  // For a contribution withdrawn before `size`, nothing changes afterwards.
  std::uint64_t spend_of(const Contribution& c) const {
    const State::Contribution* known = c.withdrawn ? state_.find(c.admission.descriptor) : nullptr;
    return known ? state_.spend_of(*known) : c.spend;
  }

  void take(const Terms& terms) {
    inside_ = true;
    Noise& noise = noise_[terms.admissibility_class];
    if (!state_.has_plans()) {
      ++noise.epochs;
    } else if (terms.steps == 0) {
      malformed("release", "entry {} names an epoch of 0 steps; verify the ledger first",
                position_);
    } else if (planned_.emplace(terms.run, terms.admissibility_class).second) {
      noise.epochs += (terms.planned_steps - 1) / terms.steps + 1;
    }
    noise.deviation =
        noise.deviation == 0 ? terms.deviation : std::min(noise.deviation, terms.deviation);
    auto& known = noise.profiles;
    if (std::find(known.begin(), known.end(), terms.profile) == known.end())
      known.push_back(terms.profile);
  }

  void take(const Use& use) {
    if (position_ >= size_) return;
    const auto at = contributions_.find(use.contribution);
    if (at == contributions_.end())
      malformed("release", "a use belongs to no contribution; verify first");
    at->second.spend = use.spend;
    at->second.used = at->second.used || inside_;
  }

  void take(const Withdrawal& withdrawal) {
    const auto at = by_descriptor_.find(withdrawal.descriptor);
    if (at == by_descriptor_.end()) {
      if (position_ >= size_ && !unknown_withdrawal_) unknown_withdrawal_ = position_;
      return;
    }
    Contribution& c = contributions_.at(at->second);
    if (position_ < size_)
      c.withdrawn = true;
    else if (c.used && !out_.withdrawn_at)
      out_.withdrawn_at = position_;
  }

  const State& state_;
  const std::set<std::string> runs_;
  std::set<std::string> unreleased_;
  std::uint64_t size_;
  const std::optional<Digest>& manifest_;
  std::uint64_t position_ = 0;
  bool inside_ = false;  // an epoch of the run
  std::map<std::uint64_t, Contribution> contributions_;
  std::unordered_map<Digest, std::uint64_t, DigestHash> by_descriptor_;
  std::map<std::string, Noise> noise_;
  std::set<std::pair<std::string, std::string>> planned_;  // run and class whose plan was seen
  std::optional<std::uint64_t> unknown_withdrawal_;
  RunRecord out_;
};

}  // namespace

RunRecord record_of(Store& store, const State& state, const std::vector<std::string>& runs,
                    std::uint64_t size, const std::optional<Digest>& manifest) {
  Scan scan(state, runs, size, manifest);
  Store::Leaves leaves(store, 0);
  for (Store::Leaf leaf; leaves.next(leaf); scan.next())
    if (leaf.summarised)
      scan.summarised();
    else
      scan.take(decode_entry(leaf.content));
  return scan.finish();
}

}  // namespace discreet::release
