#include "discreet/ledger/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/ledger/note.h"

namespace discreet::ledger {
namespace {

// `rule` is the number of the invariant in FORMAT.md.
[[noreturn]] void broken(int rule, std::string sentence) {
  malformed("ledger", "{} (rule {})", sentence, rule);
}

void require_name(std::string_view what, std::string_view text) {
  if (text.empty() || text.size() > 128)
    broken(4, fmt::format("the {} has {} bytes; expected 1 to 128", what, text.size()));
}

// Whether items ascend strictly by `key`.
bool ascends(const auto& items, const auto& key) {
  return std::adjacent_find(items.begin(), items.end(), [&](const auto& a, const auto& b) {
           return !(key(a) < key(b));
         }) == items.end();
}

}  // namespace

State::State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;

std::size_t State::DigestHash::operator()(const Digest& digest) const noexcept {
  std::size_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

const Header& State::header() const {
  if (!header_) broken(1, "the ledger has no header");
  return *header_;
}

void State::take(const Entry& entry) {
  if (size_ < 2 ? entry.index() != size_ : entry.index() < 2)
    broken(1, fmt::format("leaf {} is a {}; leaf 0 must be the header and leaf 1 the policy, and "
                          "no other leaf may be either",
                          size_, name(entry)));
  if (expected_note_.has_value() != std::holds_alternative<Signed>(entry))
    broken(2, expected_note_
                  ? fmt::format("a {} follows a checkpoint without naming it", name(entry))
                  : "a leaf names a checkpoint that was not signed before it");
  const bool of_epoch = std::holds_alternative<Terms>(entry) ||
                        std::holds_alternative<Use>(entry) ||
                        std::holds_alternative<EpochEnd>(entry);
  if (inside_epoch() && !of_epoch)
    broken(6, fmt::format("a {} is inside epoch {} of run {}", name(entry),
                          open_terms_[0].terms.epoch, open_terms_[0].terms.run));
  std::visit([this](const auto& e) { take(e); }, entry);
  ++size_;
}

void State::take(const Header& e) {
  if (e.schema == 0 || e.schema > kSchemaVersion)
    broken(1, fmt::format("entries have schema version {}; this build supports 1 to {}", e.schema,
                          kSchemaVersion));
  if (!is_note_name(e.origin)) broken(1, "the origin is not a valid name");
  if (e.delta == 0 || e.delta >= static_cast<std::uint64_t>(kAtto))
    broken(1, "delta is not in (0, 1)");
  if (!ascends(e.stewards, [](const RawKey& key) { return key; }))
    broken(1, "the stewards' keys are not in ascending order");
  static_cast<void>(admission::PublicKey::from_bytes(e.key));
  for (const RawKey& key : e.stewards) static_cast<void>(admission::PublicKey::from_bytes(key));
  spends_.emplace(e.accountant, static_cast<double>(e.delta) / kAtto);
  header_ = e;
}

void State::take(const Policy& e) {
  if (sha256(e.text) != header().policy) broken(1, "the policy is not that of the header");
}

std::uint32_t State::class_index(const std::string& name) {
  const auto [at, fresh] =
      class_ids_.try_emplace(name, static_cast<std::uint32_t>(classes_.size()));
  if (fresh) classes_.push_back(name);
  return at->second;
}

void State::take(const Admission& e) {
  if (e.number != next_number())
    broken(3, fmt::format("contribution {} should have the number {}", e.number, next_number()));
  require_name("class", e.admissibility_class);
  if (!e.signature)
    broken(4,
           fmt::format("contribution {} names no attestation; expected the SHA-256 of one by its "
                       "key",
                       e.number));
  if (e.adapter.size() > 256) broken(4, "the name of an adapter is too long");
  if (e.clip < header().clip_floor || e.clip == 0)
    broken(4, fmt::format("contribution {} declares a clip norm below the floor", e.number));
  const bool worst_case = e.promise == Promise::kWorstCase;
  if (worst_case && (e.multiplier < header().multiplier_floor || e.multiplier == 0 || e.uses == 0))
    broken(4, fmt::format("contribution {} declares a noise multiplier below the floor", e.number));
  if (worst_case ? e.epsilon != 0 : e.uses != 0 || e.epsilon == 0)
    broken(4, fmt::format("the bound of contribution {} does not fit its promise", e.number));
  if (is_withdrawn(e.descriptor))
    broken(5, fmt::format("contribution {} was withdrawn before it was admitted", e.number));
  const auto index = static_cast<std::uint32_t>(contributions_.size());
  if (!by_descriptor_.try_emplace(e.descriptor, index).second)
    broken(3, fmt::format("the descriptor of contribution {} was admitted before", e.number));
  const Bound bound = bound_of(e);
  const auto [at, fresh] =
      bound_ids_.try_emplace(bound, static_cast<std::uint32_t>(bounds_.size()));
  if (fresh) {
    bounds_.push_back(bound);
    promised_.push_back(spends_->promised(bound, header().adjacency));
  }
  contributions_.push_back({e.number, e.descriptor, e.contributor, e.not_after, at->second,
                            class_index(e.admissibility_class)});
  ++counts_.admissions;
}

void State::take(const Terms& e) {
  if (uses_began_) broken(6, "terms follow the first use of their epoch");
  require_name("run", e.run);
  require_name("class", e.admissibility_class);
  if (e.adjacency != header().adjacency)
    broken(7, fmt::format("the terms are under {}, but the ledger under {}",
                          accounting::to_string(e.adjacency),
                          accounting::to_string(header().adjacency)));
  static_cast<void>(cbor::decode(e.profile));
  if (open_terms_.empty()) {
    if (e.epoch != next_epoch(e.run))
      broken(6, fmt::format("epoch {} of run {} should be epoch {}", e.epoch, e.run,
                            next_epoch(e.run)));
    if (e.as_of < as_of_ || e.as_of < summary_.horizon)
      broken(6, fmt::format("epoch {} of run {} has an earlier date than its predecessor", e.epoch,
                            e.run));
  } else {
    const Terms& first = open_terms_[0].terms;
    if (e.run != first.run || e.epoch != first.epoch || e.as_of != first.as_of)
      broken(6, "the terms of an epoch name another run, epoch or date");
    if (!(open_terms_.back().terms.admissibility_class < e.admissibility_class))
      broken(6, "the terms of an epoch are not in ascending order of class");
  }
  require_planned(e);
  try {
    require_possible(e);
  } catch (const Error& error) {
    fail(error.code(), error.op(), "{} (rule 7)", error.sentence());
  }
  as_of_ = e.as_of;
  const std::uint32_t of = class_index(e.admissibility_class);
  const auto plan = plans_.find({e.run, of});
  open_terms_.push_back({e, size_, of, plan == plans_.end() ? 0 : plan->second.charged_below});
}

void State::require_planned(const Terms& e) {
  if (!has_plans()) {
    if (e.planned_steps != 0) broken(12, "terms name a plan in a ledger of schema 1");
    return;
  }
  if (e.planned_steps == 0)
    broken(12, fmt::format("the terms of run {} name no planned steps", e.run));
  const auto plan = plans_.find({e.run, class_index(e.admissibility_class)});
  const std::uint64_t before = plan == plans_.end() ? 0 : plan->second.terms.steps;
  if (e.steps > e.planned_steps || before > e.planned_steps - e.steps)
    broken(12, fmt::format("epoch {} of run {} has more steps than the run planned: {} after {}, "
                           "but {} were planned",
                           e.epoch, e.run, e.steps, before, e.planned_steps));
  if (plan == plans_.end()) return;
  Terms planned = plan->second.terms;
  planned.epoch = e.epoch;
  planned.as_of = e.as_of;
  planned.steps = e.steps;
  if (encode(planned) != encode(e))
    broken(12, fmt::format("epoch {} of run {} has other terms than the run planned for class {}",
                           e.epoch, e.run, e.admissibility_class));
}

const State::OpenTerms* State::terms_for(const Contribution& c) const {
  if (c.withdrawn || c.not_after <= as_of_ || c.not_before > as_of_) return nullptr;
  for (const OpenTerms& terms : open_terms_)
    if (terms.class_index == c.class_index) return &terms;
  return nullptr;
}

void State::require_none_due(std::size_t begin, std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i)
    if (terms_for(contributions_[i]))
      broken(8, fmt::format("contribution {} has no use in epoch {} of run {}",
                            contributions_[i].number, open_terms_[0].terms.epoch,
                            open_terms_[0].terms.run));
}

std::size_t State::index_of(std::uint64_t number) const {
  if (number < contributions_.size() && contributions_[number].number == number) return number;
  const auto at =
      std::lower_bound(contributions_.begin(), contributions_.end(), number,
                       [](const Contribution& c, std::uint64_t n) { return c.number < n; });
  if (at == contributions_.end() || at->number != number)
    broken(3, fmt::format("contribution {} was not admitted, or was summarised", number));
  return static_cast<std::size_t>(at - contributions_.begin());
}

Spends::StateId State::spend_after(const Contribution& c, const OpenTerms& terms) {
  if (c.number < terms.charged_below) return c.spend;  // with the plan, in an earlier epoch
  std::optional<OpenTerms::Step>& last = terms.last;
  if (!last || last->from != c.spend || last->bound != c.bound) {
    const Bound& bound = bounds_[c.bound];
    const auto to = spends_->after(
        c.spend, has_plans() ? plan_of(terms.terms, bound) : event_of(terms.terms, bound));
    if (bound.promise == Promise::kAmplified && spends_->certified(to) > bound.epsilon)
      broken(9, fmt::format("epoch {} of run {} spends more than contribution {} allows",
                            terms.terms.epoch, terms.terms.run, c.number));
    last = {c.spend, to, c.bound};
  }
  return last->to;
}

std::uint64_t State::least(const Contribution& c, const OpenTerms& terms,
                           Spends::StateId state) const {
  const std::uint64_t composed = spends_->least(state);
  const bool capped = bounds_[c.bound].promise == Promise::kAmplified ||
                      (c.capped && is_capped(terms.terms.family));
  return capped ? std::min(composed, promised_[c.bound]) : composed;
}

std::uint64_t State::spend_of(const Contribution& c) const {
  if (!c.withdrawn || c.uses == 0 || has_plans()) return c.recorded;
  const bool capped = c.capped || bounds_[c.bound].promise == Promise::kAmplified;
  return std::max(c.recorded, capped
                                  ? promised_[c.bound]
                                  : spends_->withdrawn(bounds_[c.bound], spends_->events(c.spend)));
}

void State::take(const Use& e) {
  if (open_terms_.empty()) broken(6, "a use is outside an epoch");
  const std::size_t index = index_of(e.contribution);
  Contribution& c = contributions_[index];
  if (index < next_index_)
    broken(6, fmt::format("contribution {} occurs twice or out of order in its epoch", c.number));
  if (index > next_index_) require_none_due(next_index_, index);
  if (c.withdrawn) broken(5, fmt::format("contribution {} is used after its withdrawal", c.number));
  if (c.not_before > as_of_)
    broken(8, fmt::format("contribution {} is used before its validity begins", c.number));
  const OpenTerms* terms = terms_for(c);
  if (!terms || terms->position != e.terms)
    broken(8, fmt::format("contribution {} is used under terms that are not its own", c.number));
  c.spend = spend_after(c, *terms);
  const std::uint64_t least = this->least(c, *terms, c.spend);
  c.capped = c.capped && is_capped(terms->terms.family);
  if (e.spend < least || e.spend - least > 2)
    broken(9, fmt::format("the cumulative epsilon of contribution {} is recorded as {:.6f}; its "
                          "events compose to {:.6f}",
                          c.number, static_cast<double>(e.spend) / kMicro,
                          static_cast<double>(least) / kMicro));
  c.recorded = e.spend;
  ++c.uses;
  next_index_ = index + 1;
  uses_began_ = true;
  ++open_uses_;
  ++counts_.uses;
}

std::optional<State::Due> State::next_due(std::size_t from) {
  for (std::size_t i = from; i < contributions_.size(); ++i) {
    const Contribution& c = contributions_[i];
    if (const OpenTerms* terms = terms_for(c))
      return Due{i, {terms->position, c.number, least(c, *terms, spend_after(c, *terms)) + 1}};
  }
  return std::nullopt;
}

void State::take(const EpochEnd& e) {
  if (open_terms_.empty()) broken(6, "an epoch ends that was never started");
  const Terms& terms = open_terms_[0].terms;
  if (e.run != terms.run || e.epoch != terms.epoch)
    broken(6, fmt::format("the end of epoch {} of run {} names another epoch", terms.epoch,
                          terms.run));
  require_none_due(next_index_, contributions_.size());
  if (e.uses != open_uses_)
    broken(8, fmt::format("epoch {} of run {} has {} uses, but states {}", e.epoch, e.run,
                          open_uses_, e.uses));
  epochs_[e.run].push_back({open_terms_[0].position, terms.as_of, next_number()});
  for (const OpenTerms& t : open_terms_) {
    if (has_plans()) {
      const auto [plan, first] = plans_.try_emplace({e.run, t.class_index}, Plan{t.terms});
      if (!first) plan->second.terms.steps += t.terms.steps;
      plan->second.charged_below = next_number();
    }
    SummarisedUses& of = summarised_uses_[t.terms.admissibility_class];
    of.most += open_summarised_;
    if (open_terms_.size() != 1) continue;
    of.least += open_summarised_;
    of.at_once = std::max(of.at_once, open_summarised_);
  }
  if (open_summarised_ != 0) last_summarised_date_ = terms.as_of;
  open_summarised_ = 0;
  open_terms_.clear();
  next_index_ = 0;
  open_uses_ = 0;
  uses_began_ = false;
  ++counts_.epochs;
}

void State::take(const Refusals& e) {
  if (e.counts.empty() || !ascends(e.counts, [](const auto& item) { return item.first; }))
    broken(4, "refusals are not counted per reason in ascending order");
  for (const auto& [reason, count] : e.counts) {
    require_name("reason", reason);
    if (reason == "USES_EXHAUSTED")
      broken(4,
             "exhausted uses reveal who took part: they are confidential and must not be recorded "
             "as refusals");
    if (count == 0) broken(4, fmt::format("no contribution was refused as {}", reason));
    if (count > kMostNumber - counts_.refusals)
      broken(4, fmt::format("{} refusals after {}; there may be {} (2^53) in total", count,
                            counts_.refusals, kMostNumber));
    counts_.refusals += count;
  }
}

std::optional<std::string> State::objection(const Withdrawal& e) const try {
  if (e.reason.size() > 256) return "the reason of a withdrawal is too long";
  const auto key = admission::PublicKey::from_bytes(e.key);
  const Contribution* found = find(e.descriptor);
  if (found && found->contributor != e.key && !std::ranges::binary_search(header().stewards, e.key))
    return fmt::format(
        "the withdrawal of contribution {} is signed by neither its contributor nor a steward",
        found->number);
  const auto signature = admission::decode_signature(e.signature);
  if (signature.key_id != key.id() ||
      !admission::verifies(signature.message, key,
                           withdrawal_statement(header().origin, e.descriptor, e.reason, e.time)))
    return fmt::format("the signature of the withdrawal of {} does not verify for this ledger",
                       to_hex(e.descriptor));
  return std::nullopt;
} catch (const Error& error) {
  if (error.code() == ErrorCode::kIoError) throw;
  return fmt::format("the withdrawal of {} is malformed: {}", to_hex(e.descriptor),
                     error.sentence());
}

void State::take(const Withdrawal& e) {
  if (const auto why_not = objection(e)) broken(5, *why_not);
  const auto found = by_descriptor_.find(e.descriptor);
  if (found == by_descriptor_.end() && !std::ranges::binary_search(header().stewards, e.key))
    ++unlinked_withdrawals_;  // whose admission may have been summarised since
  if (!withdrawn_.try_emplace(e.descriptor, size_).second)
    broken(5, fmt::format("the descriptor {} is withdrawn twice", to_hex(e.descriptor)));
  withdrawals_.push_back(size_);
  if (found != by_descriptor_.end()) contributions_[found->second].withdrawn = true;
  ++counts_.withdrawals;
}

void State::take(const Summary& e) {
  if (e.horizon < summary_.horizon || e.leaves < summary_.leaves)
    broken(10, "a summary covers less than the previous one");
  if (!ascends(e.classes, [](const ClassTotal& total) { return total.admissibility_class; }))
    broken(10, "the classes of a summary are not in ascending order");
  if (e.leaves > size_)
    broken(10, fmt::format("a summary states {} leaves, but {} are before it", e.leaves, size_));
  std::uint64_t left = e.leaves;
  for (const ClassTotal& total : e.classes)
    for (const std::uint64_t count : {total.contributions, total.uses}) {
      if (count > left)
        broken(10,
               fmt::format("the totals of a summary are more than the {} leaves that it states; "
                           "class {} has {} contributions and {} uses",
                           e.leaves, total.admissibility_class, total.contributions, total.uses));
      left -= count;
    }
  for (const ClassTotal& before : summary_.classes) {
    const auto now =
        std::ranges::find(e.classes, before.admissibility_class, &ClassTotal::admissibility_class);
    if (now == e.classes.end() || now->contributions < before.contributions ||
        now->uses < before.uses || now->most_spent < before.most_spent)
      broken(10, fmt::format("class {} has less in a summary than in the previous one",
                             before.admissibility_class));
  }
  summary_ = e;
  summary_covers_ = next_number();
}

void State::take(const Release& e) {
  if (!epochs_.contains(e.run))
    broken(6, fmt::format("run {} is released before its first epoch", e.run));
  ++counts_.releases;
}

void State::take(const Signed& e) {
  if (e.note != *expected_note_)
    broken(2, "the note signed before this leaf is not the one that it names");
  expected_note_.reset();
}

void State::take(const Deletion& e) {
  if (e.model.empty() || e.model.size() > 128)
    broken(11, fmt::format("the name of a model has {} bytes; expected 1 to 128", e.model.size()));
  if (e.engine != "exact" && e.engine != "erm" && e.engine != "stream")
    broken(11, "a deletion names an unknown engine");
  if ((e.promise == DeletionPromise::kExact) != (e.epsilon == 0 && e.delta == 0) ||
      e.delta >= static_cast<std::uint64_t>(kAtto))
    broken(11, fmt::format("the bound of deletion {} of {} does not fit its promise", e.number,
                           e.model));
  Model& model = models_[e.model];
  if (e.number != model.deletions)
    broken(11, fmt::format("deletion {} of {} should have the number {}", e.number, e.model,
                           model.deletions));
  if (e.generation < model.generation)
    broken(11,
           fmt::format("deletion {} of {} belongs to an earlier generation", e.number, e.model));
  if (e.withdrawal && !std::binary_search(withdrawals_.begin(), withdrawals_.end(), *e.withdrawal))
    broken(11, fmt::format("deletion {} of {} names entry {}, which is not a withdrawal", e.number,
                           e.model, *e.withdrawal));
  model = {e.number + 1, e.generation, chained(model.chain, encode(e))};
  ++counts_.deletions;
}

void State::take_summarised(const Digest& hash) {
  if (size_ < 2 || expected_note_) broken(10, "a leaf is summarised that must be kept");
  std::uint8_t position[8];
  for (int i = 0; i < 8; ++i) position[i] = static_cast<std::uint8_t>(size_ >> (56 - 8 * i));
  summarised_digest_.update(position).update(hash);
  if (inside_epoch()) {
    uses_began_ = true;
    ++open_uses_;
    ++open_summarised_;
  } else {
    ++summarised_admissions_;
  }
  ++counts_.summarised;
  ++size_;
}

void State::take_note(std::string_view note) {
  if (inside_epoch()) broken(2, "a checkpoint was signed inside an epoch");
  if (expected_note_) broken(2, "two checkpoints have no leaf between them");
  expected_note_ = sha256(bytes_of(note));
  ++counts_.notes;
}

void State::finish() {
  if (!expected_note_) broken(2, "the last leaves are not signed");
  if (counts_.summarised != summary_.leaves)
    broken(10, fmt::format("{} leaves are summarised, but the summary states {}",
                           counts_.summarised, summary_.leaves));
  if (summary_.leaves != 0 && summarised_digest_.finish() != summary_.digest)
    broken(10, "the summarised leaves are not those of the summary");
  std::uint64_t contributions = 0, uses = 0;  // at most the leaves (take)
  for (const ClassTotal& total : summary_.classes) {
    contributions += total.contributions;
    uses += total.uses;
  }
  if (contributions != summarised_admissions_ || contributions + uses != summary_.leaves)
    broken(10, "the totals of the summary are not those of the leaves it replaced");
  check_totals();
  if (unlinked_withdrawals_ > contributions)
    broken(5,
           "a contribution that was never admitted was withdrawn by a key that is not a steward's");
}

// The remaining leaves determine the classes: how many leaves each epoch lost, and which
// contributions are still there.
void State::check_totals() const {
  std::map<std::string, ClassTotal> totals;
  for (const ClassTotal& total : summary_.classes) totals[total.admissibility_class] = total;
  for (const auto& [name, total] : totals)
    if ((total.uses == 0) != (total.most_spent == 0) ||
        (total.uses != 0 && total.contributions == 0))
      broken(10, fmt::format("the totals of class {} in the summary contradict each other", name));
  for (const auto& [name, lost] : summarised_uses_) {
    const ClassTotal& total = totals[name];
    if (total.uses < lost.least || total.uses > lost.most || total.contributions < lost.at_once)
      broken(10, fmt::format("the summary states {} uses and {} contributions of class {}; its "
                             "epochs lost {} to {} uses, {} in one epoch",
                             total.uses, total.contributions, name, lost.least, lost.most,
                             lost.at_once));
  }
  if (last_summarised_date_ && *last_summarised_date_ >= summary_.horizon)
    broken(10, "a use is summarised whose contribution had not ended at the horizon");
  for (const Contribution& c : contributions_)
    if (c.number < summary_covers_ && is_due_for_summary(c, summary_.horizon))
      broken(10, fmt::format("contribution {} ended before the horizon, but the summary omits it",
                             c.number));
}

std::optional<std::uint64_t> State::withdrawal_of(const Digest& descriptor) const {
  const auto at = withdrawn_.find(descriptor);
  if (at == withdrawn_.end()) return std::nullopt;
  return at->second;
}

std::uint64_t State::next_deletion(const std::string& model) const {
  const auto at = models_.find(model);
  return at == models_.end() ? 0 : at->second.deletions;
}

Digest State::deletions_of(const std::string& model) const {
  const auto at = models_.find(model);
  return at == models_.end() ? Digest{} : at->second.chain;
}

Digest State::chained(const Digest& before, ByteView deletion) {
  return Sha256().update(before).update(deletion).finish();
}

const State::Contribution* State::find(const Digest& descriptor) const {
  const auto at = by_descriptor_.find(descriptor);
  return at == by_descriptor_.end() ? nullptr : &contributions_[at->second];
}

const std::vector<State::Epoch>& State::epochs(const std::string& run) const {
  static const std::vector<Epoch> none;
  const auto at = epochs_.find(run);
  return at == epochs_.end() ? none : at->second;
}

Summary State::summary(std::uint64_t horizon) const {
  Summary out = summary_;
  out.horizon = horizon;
  std::map<std::string, ClassTotal> totals;
  for (const ClassTotal& total : summary_.classes) totals[total.admissibility_class] = total;
  for (const Contribution& c : contributions_) {
    if (!is_due_for_summary(c, horizon)) continue;
    ClassTotal& total = totals[class_name(c.class_index)];
    ++total.contributions;
    total.uses += c.uses;
    total.most_spent = std::max(total.most_spent, spend_of(c));
  }
  out.classes.clear();
  for (auto& [name, total] : totals) {
    total.admissibility_class = name;
    out.classes.push_back(total);
  }
  return out;
}

}  // namespace discreet::ledger
