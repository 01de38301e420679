#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "discreet/ledger/entry.h"
#include "discreet/ledger/spend.h"

namespace discreet::ledger {

// The state after the leaves read so far, and the rules of FORMAT.md between them. Only this class
// checks the rules, for the writer before it writes and for every verifier. Memory grows with the
// number of contributions (about 200 bytes each) and of distinct histories, not with the number of
// uses.
class State {
 public:
  State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  ~State();

  // Processes the next leaf. Throws kMalformed or kInvalidDpConfig, with the violated rule, if the
  // leaf may not follow here; the state is unusable then.
  void take(const Entry& entry);
  // Sets the time from which the descriptor of the last admission is valid.
  void begin_validity(std::uint64_t not_before) { contributions_.back().not_before = not_before; }
  // Processes the next leaf if only its hash was kept.
  void take_summarised(const Digest& hash);
  // Processes a checkpoint signed at this position; `note` is its text. Throws kMalformed inside an
  // epoch.
  void take_note(std::string_view note);
  // Checks that the summarised leaves match their summary. Call it after the last leaf. Throws
  // kMalformed.
  void finish();

  std::uint64_t size() const noexcept { return size_; }
  bool inside_epoch() const noexcept { return !open_terms_.empty(); }
  // Throws kMalformed if there is no header yet.
  const Header& header() const;
  // True if terms name the plans of their runs (schema 2), so that spends do not depend on when a
  // run was stopped.
  bool has_plans() const { return header().schema >= 2; }
  // The number of the next admission.
  std::uint64_t next_number() const noexcept { return counts_.admissions + summarised_admissions_; }

  struct Contribution {
    std::uint64_t number;
    Digest descriptor;
    RawKey contributor;
    std::uint64_t not_after;
    std::uint32_t bound;  // index into bounds
    std::uint32_t class_index;
    Spends::StateId spend = Spends::kNothing;
    std::uint32_t uses = 0;
    std::uint64_t recorded = 0;  // spend of the last use, millionths; report it through spend_of()
    bool withdrawn = false;
    bool capped = true;  // is_capped() for all its uses
    std::uint64_t not_before = 0;
  };
  const std::vector<Contribution>& contributions() const noexcept { return contributions_; }
  // The spend to report for a contribution, in millionths: its last recorded spend. In a ledger
  // without plans, for a withdrawn contribution, the cost of all uses that it allowed.
  std::uint64_t spend_of(const Contribution& c) const;
  const Contribution* find(const Digest& descriptor) const;
  const std::string& class_name(std::uint32_t index) const { return classes_[index]; }
  bool is_withdrawn(const Digest& descriptor) const { return withdrawn_.contains(descriptor); }
  // All withdrawals so far: the descriptor, and the position of the leaf.
  struct DigestHash {
    std::size_t operator()(const Digest& digest) const noexcept;
  };
  using Withdrawals = std::unordered_map<Digest, std::uint64_t, DigestHash>;
  const Withdrawals& withdrawals() const noexcept { return withdrawn_; }
  // The epochs of a run, from 0 on: the start and date of each, and the contributions present.
  // Empty for an unknown run.
  struct Epoch {
    std::uint64_t position;
    std::uint64_t as_of;
    std::uint64_t admitted;  // contributions with lower numbers were admitted before it
  };
  const std::vector<Epoch>& epochs(const std::string& run) const;
  // The next epoch that a run can reserve.
  std::uint64_t next_epoch(const std::string& run) const { return epochs(run).size(); }
  // The position of the withdrawal.
  std::optional<std::uint64_t> withdrawal_of(const Digest& descriptor) const;
  // Why a withdrawal may not follow here, as a clause; empty if it may follow.
  std::optional<std::string> objection(const Withdrawal& withdrawal) const;
  // The number of the next deletion of a model; 0 for an unknown model.
  std::uint64_t next_deletion(const std::string& model) const;
  // The chain of all deletions of a model so far: zeros at first, then the SHA-256 of the chain
  // before and the bytes of the entry.
  Digest deletions_of(const std::string& model) const;
  static Digest chained(const Digest& before, ByteView deletion);
  std::uint64_t last_as_of() const noexcept { return as_of_; }

  // Inside an epoch: the next contribution, at or after index `from`, that needs a use leaf, and
  // that leaf. Empty if all have one.
  struct Due {
    std::size_t index;
    Use use;
  };
  std::optional<Due> next_due(std::size_t from);

  // The summary of everything that ended before `horizon`, and whether a leaf of a contribution
  // belongs to it.
  Summary summary(std::uint64_t horizon) const;
  bool is_due_for_summary(const Contribution& c, std::uint64_t horizon) const {
    return c.not_after <= horizon;
  }
  const Summary& last_summary() const noexcept { return summary_; }

  struct Counts {
    std::uint64_t admissions = 0, uses = 0, epochs = 0, withdrawals = 0, refusals = 0, releases = 0,
                  summarised = 0, notes = 0, deletions = 0;
  };
  const Counts& counts() const noexcept { return counts_; }
  std::size_t histories() const noexcept { return spends_ ? spends_->states() : 0; }

 private:
  struct OpenTerms {
    Terms terms;
    std::uint64_t position;
    std::uint32_t class_index;
    // Contributions below this number were charged for the plan in an earlier epoch of the run.
    std::uint64_t charged_below = 0;
    // The last transition of a spend under these terms: most contributions make the same one.
    struct Step {
      Spends::StateId from, to;
      std::uint32_t bound;
    };
    mutable std::optional<Step> last = {};
  };

  void take(const Header& e);
  void take(const Policy& e);
  void take(const Admission& e);
  void take(const Terms& e);
  void take(const Use& e);
  void take(const EpochEnd& e);
  void take(const Refusals& e);
  void take(const Withdrawal& e);
  void take(const Summary& e);
  void check_totals() const;
  void take(const Release& e);
  void take(const Signed& e);
  void take(const Deletion& e);

  void require_planned(const Terms& e);
  std::uint32_t class_index(const std::string& name);
  std::size_t index_of(std::uint64_t number) const;
  // The terms that apply to a contribution in the open epoch; null if it is not part of it.
  const OpenTerms* terms_for(const Contribution& c) const;
  Spends::StateId spend_after(const Contribution& c, const OpenTerms& terms);
  // A lower bound of the recorded spend for a contribution in a state of its spends.
  std::uint64_t least(const Contribution& c, const OpenTerms& terms, Spends::StateId state) const;
  void require_none_due(std::size_t begin, std::size_t end) const;

  std::uint64_t size_ = 0;
  std::optional<Header> header_;
  std::optional<Spends> spends_;
  std::vector<Contribution> contributions_;
  std::unordered_map<Digest, std::uint32_t, DigestHash> by_descriptor_;
  Withdrawals withdrawn_;
  std::vector<std::string> classes_;
  std::map<std::string, std::uint32_t> class_ids_;
  std::vector<Bound> bounds_;
  std::vector<std::uint64_t> promised_;  // by bound: epsilon of one Gaussian release
  std::map<Bound, std::uint32_t> bound_ids_;
  std::map<std::string, std::vector<Epoch>> epochs_;  // by run
  // What a run plans for a class: the terms of its first epoch with the class, with the steps of
  // all its epochs so far, and the number of the first contribution that was absent from the last
  // of them.
  struct Plan {
    Terms terms;
    std::uint64_t charged_below = 0;
  };
  std::map<std::pair<std::string, std::uint32_t>, Plan> plans_;  // by run and class
  std::uint64_t as_of_ = 0;
  struct Model {
    std::uint64_t deletions = 0, generation = 0;
    Digest chain{};
  };
  std::map<std::string, Model> models_;
  std::vector<std::uint64_t> withdrawals_;  // positions, ascending

  std::vector<OpenTerms> open_terms_;  // of the epoch being read; empty outside an epoch
  std::size_t next_index_ = 0;         // the first contribution that may come next in it
  std::uint64_t open_uses_ = 0;        // uses read in it, including summarised ones
  bool uses_began_ = false;

  std::optional<Digest> expected_note_;  // the next leaf must be Signed with it

  Sha256 summarised_digest_;
  std::uint64_t summarised_admissions_ = 0;
  // Summarised uses by class. least: those that certainly belong to the class, because their epoch
  // has no other class. most: those that may belong to it. at_once: the maximum of the first kind
  // in one epoch.
  struct SummarisedUses {
    std::uint64_t least = 0, most = 0, at_once = 0;
  };
  std::map<std::string, SummarisedUses> summarised_uses_;
  std::uint64_t open_summarised_ = 0;  // in the epoch being read
  // The date of the last epoch with summarised uses.
  std::optional<std::uint64_t> last_summarised_date_;
  std::uint64_t summary_covers_ = 0;  // contributions with lower numbers
  std::uint64_t unlinked_withdrawals_ = 0;
  Summary summary_;
  Counts counts_;
};

}  // namespace discreet::ledger
