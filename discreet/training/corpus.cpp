#include "discreet/training/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "discreet/admission/anchor_file.h"
#include "discreet/admission/contributors.h"
#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/mechanism/step/amplification.h"

namespace discreet::training {
namespace {

using admission::Descriptor;

// The step under which a run reserves the schedule of amplified classes.
constexpr std::uint64_t kSchedule = std::uint64_t{1} << 62;

constexpr const char* kOperator = "corpus";

const std::string& needed(const std::optional<std::string>& value, const char* key) {
  if (!value) invalid_config(kOperator, "corpus.{} is missing", key);
  return *value;
}

std::string text_of(const std::string& path) {
  const Bytes bytes = read_file(path, std::size_t{1} << 40);
  return {bytes.begin(), bytes.end()};
}

// Leaves the rows of `kept`, ascending.
void keep_rows(data::Dataset& data, const std::vector<std::size_t>& kept) {
  const auto gather = [&](auto& values, std::size_t width) {
    if (values.empty()) return;
    auto to = values.begin();
    for (const std::size_t row : kept)
      to = std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * width), width, to);
    values.erase(to, values.end());
  };
  gather(data.x, data.features);
  gather(data.label, 1);
  gather(data.target, 1);
  gather(data.anchors, 1);
  data.rows = kept.size();
}

}  // namespace

Corpus::Corpus(const Config& config, data::Dataset& data, int threads, std::string run,
               std::filesystem::path note, Writes writes)
    : injection_(config.corpus.injection),
      noise_{config.privacy.noise_family, config.privacy.noise_discrete.value_or(0)},
      plan_only_(writes == Writes::kNothing),
      run_(std::move(run)) {
  const CorpusConfig& c = config.corpus;
  ledger_epoch_steps_ = c.ledger_epoch_steps;
  if (config.data.format != DataFormat::kCsv)
    invalid_config(kOperator, "data.format must be csv: a contribution is one line of it");
  if (config.data.holdout > 0)
    invalid_config(kOperator,
                   "data.holdout would test on contributions without a promise; set data.test");
  if (!config.data.private_bounds.empty())
    invalid_config(
        kOperator,
        "data.private_bounds is a release that no contribution was promised; declare bounds");
  const std::string& policy = needed(c.policy, "policy");
  policy_ = admission::read_policy(text_of(policy), policy);
  const std::string& uses = needed(c.uses, "uses");
  ledger_ =
      std::make_unique<CorpusLedger>(config, policy_, std::move(note), writes != Writes::kUses);
  admit(config, data, threads, run_);
  // A store that the run can create is left to it; one that could not be created is rejected here.
  const std::filesystem::path store = uses;
  const bool could_be_made =
      !std::filesystem::exists(store) && std::filesystem::is_directory(store.parent_path());
  if (!plan_only_ || !could_be_made) uses_ = std::make_unique<admission::UseStore>(store);
}

void Corpus::admit(const Config& config, data::Dataset& data, int threads, const std::string& run) {
  const CorpusConfig& c = config.corpus;
  admission::Circumstances at;
  at.time = admission::parse_instant(needed(c.at, "at"), "corpus.at");
  at_ = static_cast<std::uint64_t>(at.time);
  if (c.statements)
    at.statements = admission::parse_statements(text_of(*c.statements), *c.statements);
  if (c.withdrawn) at.withdrawn = admission::parse_hashes(text_of(*c.withdrawn), *c.withdrawn);
  at.withdrawn.merge(ledger_->withdrawn_before(run));
  at.in_ledger = [&](const Digest& hash) { return ledger_->holds(hash); };
  ledger_->require_recent(run, at_, policy_.epoch_seconds);
  std::map<admission::KeyId, admission::PublicKey> keys;
  for (const admission::TrustedKey& k : policy_.keys) keys.emplace(k.key.id(), k.key);
  for (const admission::Rotation& r : at.statements.rotations) keys.emplace(r.to.id(), r.to);
  const std::string& file = needed(c.descriptors, "descriptors");
  std::vector<admission::Contribution> contributions;
  for (admission::Anchored& a : admission::parse_anchors(text_of(file), file))
    contributions.push_back(std::move(a.contribution));
  admission::Gate gate(policy_, std::move(at));
  const std::vector<admission::Verdict> verdicts = gate.admit(contributions, threads);

  // Those with a record's anchor, admitted ones first, each in the order of the file.
  std::map<Digest, std::vector<std::size_t>> by_anchor;
  std::set<Digest> seen;
  for (const bool admitted : {true, false})
    for (std::size_t i = 0; i < verdicts.size(); ++i)
      if (const admission::Verdict& v = verdicts[i];
          v.admitted() == admitted && v.descriptor && seen.insert(v.hash).second)
        by_anchor[v.descriptor->content_anchor].push_back(i);
  for (const admission::Verdict& v : verdicts)
    if (!v.descriptor) ++refused_[std::string(to_string(*v.refusal))];
  std::map<Digest, std::size_t> records;
  for (const Digest& anchor : data.anchors) ++records[anchor];
  // Who signed for this payload, in whatever state their consent is. With fewer records than
  // claimants, the consent of one would cover what another gave, and has perhaps withdrawn.
  const auto is_contested = [&](const Digest& anchor, const std::vector<std::size_t>& claims) {
    std::set<std::pair<std::string_view, std::string_view>> claimants;
    for (const std::size_t i : claims)
      if (!verdicts[i].signer.empty())
        claimants.emplace(verdicts[i].descriptor->contributor, verdicts[i].signer);
    return claimants.size() > records.at(anchor);
  };
  std::vector<std::size_t> kept;
  std::map<Digest, std::size_t> taken;
  for (std::size_t row = 0; row < data.rows; ++row) {
    const auto found = by_anchor.find(data.anchors.at(row));
    std::size_t& next = taken[data.anchors[row]];
    const std::optional<std::size_t> i = found != by_anchor.end() && next < found->second.size()
                                             ? std::optional(found->second[next++])
                                             : std::nullopt;
    const admission::Verdict* v = i ? &verdicts[*i] : nullptr;
    if (v != nullptr && v->admitted()) {
      kept.push_back(row);
      contested_.push_back(is_contested(data.anchors[row], found->second) ? 1 : 0);
      descriptors_.push_back(*v->descriptor);
      hashes_.push_back(v->hash);
      admission::Contribution& own = contributions[*i];
      const auto key = admission::decode_signature(own.attestation).key_id;
      admitted_.push_back(
          {std::move(own.descriptor), std::move(own.attestation), keys.at(key), 0, true});
    } else {
      ++refused_[std::string(
          to_string(v != nullptr ? *v->refusal : admission::Refusal::kNoAttestation))];
    }
  }
  if (kept.empty()) invalid_input(kOperator, "{}: there are no records to train on", sentence());
  keep_rows(data, kept);
}

void Corpus::resolve(const ModelLayout& layout, const mechanism::SamplingPlan& sampling) {
  using Terms = std::tuple<std::string, admission::Scaled, admission::Scaled, std::uint32_t,
                           admission::Promise, std::string>;
  std::map<Terms, std::uint32_t> known;
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    const Descriptor& d = descriptors_[i];
    const auto [at, fresh] = known.try_emplace(
        Terms{d.data_class, d.clip_norm, d.noise_multiplier, d.occurrences, d.promise, d.adapter},
        static_cast<std::uint32_t>(classes_.size()));
    class_of_.push_back(at->second);
    const auto& amplified = policy_.classes.at(d.data_class).amplified;
    if (!fresh) {
      admitted_[i].least_multiplier = classes_.at(at->second).recorded_multiplier();
      continue;
    }
    require_sampler(policy_.classes.at(d.data_class), d.data_class, sampling);
    classes_.push_back({d, admission::resolve(policy_, d, layout, noise_), amplified.has_value()});
    admitted_[i].least_multiplier = classes_.back().recorded_multiplier();
    routes_.plans.push_back(classes_.back().resolution.plan);
  }
  routes_.injection = injection_;
}

namespace {

[[noreturn]] void exhausted(std::size_t contributions, std::uint64_t steps) {
  budget_exceeded(kOperator,
                  "{} contributions of amplified classes have fewer than {} steps of their "
                  "schedule left: {}; plan fewer steps, or remove them from the descriptors",
                  contributions, steps, "USES_EXHAUSTED");
}

}  // namespace

void Corpus::require_room(const mechanism::Mechanism& mechanism) {
  steps_ = mechanism.config().privacy.target_steps.value();
  steps_per_epoch_ = ledger_epoch_steps_.value_or(mechanism.sampling().steps_per_epoch);
  if (ledger_epoch_steps_ && mechanism.sampling().steps_per_event() != 1)
    invalid_config(
        kOperator,
        "corpus.ledger_epoch_steps is {}, but the event of the sampler is the whole epoch "
        "of the data, which the ledger reserves at once; remove the key",
        *ledger_epoch_steps_);
  terms_ = epoch_terms(policy_, classes_, mechanism);
  training::require_room(classes_, mechanism, injection_, steps_, ledger_->header().delta);
  claims_.clear();
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    if (!classes_[class_of_[i]].amplified) continue;
    const std::uint64_t cap = classes_[class_of_[i]].resolution.most_uses;
    if (steps_ > cap)
      budget_exceeded(kOperator, "class {} is promised {} steps, but the run has {}",
                      descriptors_[i].data_class, cap, steps_);
    claims_.push_back({hashes_[i], steps_, cap});
  }
  if (!plan_only_ || uses_ == nullptr) return;
  for (const admission::UseStore::Claim& claim : claims_)
    if (uses_->used(claim.descriptor) + claim.uses > claim.cap) exhausted(claims_.size(), steps_);
}

void Corpus::begin(std::uint64_t step) {
  if (!claims_.empty()) {
    const std::vector<std::uint8_t> reserved = uses_->reserve(identity_.uses, kSchedule, claims_);
    if (std::ranges::count(reserved, 0) != 0) exhausted(claims_.size(), steps_);
  }
  enter_epoch(step);
}

void Corpus::enter_epoch(std::uint64_t step) {
  const std::uint64_t epoch = step / steps_per_epoch_;
  if (epoch_ == epoch || step >= steps_) return;
  std::vector<ledger::Terms> terms = terms_;
  for (ledger::Terms& t : terms) {
    const bool whole_epochs = t.sampler >= 4;  // the epoch is the event, and is charged whole
    if (!whole_epochs) t.steps = std::min(steps_per_epoch_, steps_ - epoch * steps_per_epoch_);
    // Under every name: how much was done under an earlier one depends on when it was stopped.
    t.planned_steps = whole_epochs ? ((steps_ - 1) / steps_per_epoch_ + 1) * t.batch : steps_;
  }
  const std::uint64_t number = epoch - identity_.first_epoch;
  ledger::Refusals refused;
  if (identity_.ledger == run_) refused.counts.assign(refused_.begin(), refused_.end());
  ledger_->reserve({identity_.ledger, number, at_, std::move(terms)}, std::exchange(admitted_, {}),
                   refused);
  absent_.assign(hashes_.size(), 0);
  for (std::size_t i = 0; i < hashes_.size(); ++i)
    absent_[i] =
        !ledger_->takes_part(identity_.ledger, number, hashes_[i], descriptors_[i].not_after);
  epoch_ = epoch;
}

std::vector<std::uint32_t> Corpus::reserve(std::uint64_t step,
                                           std::span<const std::uint64_t> records) {
  std::vector<std::uint32_t> out;
  std::vector<admission::UseStore::Claim> claims;
  std::vector<std::size_t> places;
  for (const std::uint64_t record : records) {
    const std::uint32_t c = class_of_.at(record);
    if (absent_[record] != 0 || contested_[record] != 0) {
      out.push_back(kNoRoute);
      continue;
    }
    if (!classes_[c].amplified) {
      places.push_back(out.size());
      claims.push_back({hashes_[record], 1, classes_[c].resolution.most_uses});
    }
    out.push_back(c);
  }
  if (claims.empty()) return out;
  const std::vector<std::uint8_t> reserved = uses_->reserve(identity_.uses, step, claims);
  for (std::size_t i = 0; i < claims.size(); ++i)
    if (reserved[i] == 0) out[places[i]] = kNoRoute;
  return out;
}

Digest Corpus::admitted_hash() const {
  Sha256 out;
  for (const Digest& hash : hashes_) out.update(hash);
  if (std::ranges::count(contested_, 1) != 0) out.update(contested_);
  return out.finish();
}

std::string Corpus::sentence() const {
  std::uint64_t total = 0;
  std::string codes;
  for (const auto& [code, count] : refused_) {
    total += count;
    codes += fmt::format("{}{} {}", codes.empty() ? " (" : ", ", count, code);
  }
  return fmt::format("corpus {}: {} contributions admitted, {} rejected{}{}", policy_.corpus,
                     descriptors_.size(), total, codes, codes.empty() ? "" : ")");
}

std::vector<Corpus::ClassBounds> Corpus::bounds(const mechanism::Mechanism& mechanism) const {
  std::vector<ClassBounds> out;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const RoutePlan& plan = classes_[c].resolution.plan;
    ClassBounds own{classes_[c].descriptor.data_class,
                    0,
                    mechanism.router()->noise_multiplier(c),
                    plan.flat_clip,
                    {}};
    own.contributions = static_cast<std::uint64_t>(std::ranges::count(class_of_, c));
    for (const RouteBlock& block : plan.blocks) own.clip.emplace_back(block.name, block.clip);
    out.push_back(std::move(own));
  }
  return out;
}

cbor::Value Corpus::ledger_name() const {
  return cbor::map({{"origin", ledger_->header().origin}, {"run", identity_.ledger}});
}

cbor::Value Corpus::summary(const mechanism::Mechanism& mechanism) const {
  std::vector<cbor::Entry> refused;
  for (const auto& [code, count] : refused_) refused.push_back({code, count});
  std::vector<std::uint64_t> records(classes_.size());
  for (const std::uint32_t c : class_of_) ++records[c];
  std::vector<cbor::Value> classes;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const admission::Resolution& r = classes_[c].resolution;
    const std::string& name = classes_[c].descriptor.data_class;
    const ContributionAccount account =
        account_of_contribution(policy_, classes_[c], mechanism.use_of(c), r.most_uses,
                                mechanism.config().privacy.target_delta);
    classes.push_back(
        cbor::map({{"class", name},
                   {"contributions", records[c]},
                   {"route", ByteView(hash_of(r.plan))},
                   {"noise_multiplier", mechanism.router()->noise_multiplier(c)},
                   {"most_uses", r.most_uses},
                   {"gdp_mu", r.gdp_mu ? cbor::Value(*r.gdp_mu) : cbor::Value(nullptr)},
                   {"renyi_rho", r.renyi_rho ? cbor::Value(*r.renyi_rho) : cbor::Value(nullptr)},
                   {"epsilon", account.epsilon},
                   {"delta", account.delta},
                   {"accountant", to_string(policy_.accountant)},
                   {"adjacency", "zero_out"}}));
  }
  cbor::Value injection = nullptr;
  if (injection_ == Injection::kPerSample) {
    const auto bounds = mechanism::injection_bounds(mechanism.router()->noise_multiplier(),
                                                    mechanism.most_records(),
                                                    mechanism.config().privacy.target_delta);
    injection = cbor::map({{"slots", mechanism.most_records()},
                           {"epsilon_of_sum", bounds.of_sum},
                           {"epsilon_shuffled",
                            bounds.shuffled ? cbor::Value(*bounds.shuffled) : cbor::Value(nullptr)},
                           {"adjacency", "replace_one"}});
  }
  const auto totals = admission::contributor_totals(descriptors_);
  return cbor::map(
      {{"name", policy_.corpus},
       {"policy_hash", ByteView(hash_of(policy_))},
       {"ledger", ledger_name()},
       {"profile_schema", admission::kProfileSchema},
       {"admitted", admitted()},
       {"admitted_hash", ByteView(admitted_hash())},
       {"refused", cbor::map(std::move(refused))},
       {"classes", cbor::array(std::move(classes))},
       {"per_sample_step", std::move(injection)},
       {"contributors", totals.size()},
       {"most_of_a_contributor",
        cbor::map({{"contributions", totals[0].contributions},
                   {"gdp_mu", admission::promises_gdp(noise_.family) ? cbor::Value(totals[0].gdp_mu)
                                                                     : cbor::Value(nullptr)}})}});
}

}  // namespace discreet::training
