#include "discreet/training/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "discreet/admission/anchor_file.h"
#include "discreet/admission/cose.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/projection.h"
#include "discreet/numerics/rounding.h"
#include "discreet/run/files.h"

namespace discreet::training {
namespace {

using admission::Descriptor;
using mechanism::kNoRoute;

// The step under which a run reserves the schedule of amplified classes.
constexpr std::uint64_t kSchedule = std::uint64_t{1} << 62;

[[noreturn]] void refuse(std::string sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, "corpus", std::move(sentence));
}

const std::string& needed(const std::optional<std::string>& value, const char* key) {
  if (!value) refuse(fmt::format("corpus.{} is missing", key));
  return *value;
}

std::string text_of(const std::string& path) {
  const Bytes bytes = run::read_file(path, std::size_t{1} << 40);
  return {bytes.begin(), bytes.end()};
}

std::uint64_t whole_below(double x) {
  return static_cast<std::uint64_t>(std::floor(numerics::round_down(x, 2)));
}
std::uint64_t whole_above(double x) {
  return static_cast<std::uint64_t>(std::ceil(numerics::round_up(x, 2)));
}

// What an epoch's terms say of the sampler.
struct SamplerTerms {
  ledger::Terms& out;
  void operator()(const accounting::NoSampling&) const { out.sampler = 0; }
  void operator()(const accounting::Poisson& s) const {
    out.sampler = 1;
    out.rate = std::min(whole_above(s.rate * ledger::kPico), std::uint64_t(ledger::kPico));
  }
  void operator()(const accounting::TruncatedPoisson& s) const {
    (*this)(accounting::Poisson{s.rate});
    out.sampler = 2;
    out.batch = s.batch;
    out.population = s.population;
  }
  void operator()(const accounting::FixedSize& s) const {
    out.sampler = 3;
    out.batch = s.batch;
    out.population = s.population;
  }
  void operator()(const accounting::BallsAndBins& s) const {
    out.sampler = 4;
    out.batch = s.batches;
  }
  void operator()(const accounting::ShuffledEpoch& s) const {
    out.sampler = 5;
    out.batch = s.batches;
  }
};

// The noise of a plan as its records see it: a record that is cut to norm C, and no further, has
// multiplier s / C. Flat: the least of its blocks. Per block: bounds follow the noise, and what
// counts is its root mean square.
std::uint64_t deviation_of(const mechanism::RoutePlan& plan, const admission::Policy& policy) {
  std::uint64_t least = ~std::uint64_t{0};
  double squares = 0;
  for (const mechanism::RouteBlock& b : plan.blocks) {
    const std::uint64_t s = (b.name == "default" ? policy.noise : policy.blocks.at(b.name)).units;
    least = std::min(least, s);
    squares += static_cast<double>(s) * static_cast<double>(s);
  }
  if (policy.clipping == admission::BlockClipping::kFlat || plan.blocks.size() == 1) return least;
  return whole_below(numerics::round_down(
      std::sqrt(squares / static_cast<double>(plan.blocks.size())), plan.blocks.size() + 2));
}

// Leaves the rows of `kept`, ascending.
void keep_rows(Dataset& data, const std::vector<std::size_t>& kept) {
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

Corpus::Corpus(const mechanism::Config& config, Dataset& data, int threads, std::string run,
               std::filesystem::path note, bool append)
    : injection_(config.corpus.injection), run_(std::move(run)) {
  const mechanism::CorpusConfig& c = config.corpus;
  if (config.data.format != mechanism::DataFormat::kCsv)
    refuse("data.format must be csv: a contribution is a line of it");
  if (config.data.holdout > 0)
    refuse("data.holdout would test on contributions without a promise; name a data.test");
  if (!config.data.private_bounds.empty())
    refuse("data.private_bounds are a release that no contribution was promised; declare bounds");
  if (config.privacy.noise_family != mechanism::NoiseFamily::kGaussian &&
      config.privacy.noise_family != mechanism::NoiseFamily::kRoundedGaussian)
    refuse("noise.family must be gaussian or rounded_gaussian: descriptors promise a Gaussian");
  const std::string& policy = needed(c.policy, "policy");
  policy_ = admission::read_policy(text_of(policy), policy);
  const std::string& uses = needed(c.uses, "uses");
  ledger_ = std::make_unique<CorpusLedger>(config, policy_, std::move(note), append);
  admit(config, data, threads, run_);
  uses_ = std::make_unique<admission::UseStore>(uses);
}

void Corpus::admit(const mechanism::Config& config, Dataset& data, int threads,
                   const std::string& run) {
  const mechanism::CorpusConfig& c = config.corpus;
  admission::Circumstances at;
  at.time = admission::parse_instant(needed(c.at, "at"), "corpus.at");
  at_ = static_cast<std::uint64_t>(at.time);
  if (c.statements)
    at.statements = admission::parse_statements(text_of(*c.statements), *c.statements);
  if (c.withdrawn) at.withdrawn = admission::parse_hashes(text_of(*c.withdrawn), *c.withdrawn);
  at.withdrawn.merge(ledger_->withdrawn_before(run));
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
  if (kept.empty())
    throw Error(ErrorCode::kInvalidInput, "corpus", sentence() + ": there is nothing to train on");
  keep_rows(data, kept);
}

void Corpus::resolve(const mechanism::ModelLayout& layout,
                     const mechanism::SamplingPlan& sampling) {
  using Terms = std::tuple<std::string, admission::Scaled, admission::Scaled, std::uint32_t,
                           admission::Promise, std::string>;
  std::map<Terms, std::uint32_t> known;
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    const Descriptor& d = descriptors_[i];
    const auto [at, fresh] = known.try_emplace(
        Terms{d.data_class, d.clip_norm, d.noise_multiplier, d.occurrences, d.promise, d.adapter},
        static_cast<std::uint32_t>(resolutions_.size()));
    class_of_.push_back(at->second);
    const auto& amplified = policy_.classes.at(d.data_class).amplified;
    if (!fresh) {
      admitted_[i].least_multiplier = least_.at(at->second);
      continue;
    }
    if (amplified && (sampling.mode != mechanism::SamplingMode::kPoisson || !sampling.rate ||
                      *sampling.rate > amplified->rate.from_above()))
      refuse(
          fmt::format("class {} is amplified for Poisson sampling at rate {}; sample so, and at "
                      "most at that rate",
                      d.data_class, amplified->rate.to_text()));
    resolutions_.push_back(admission::resolve(policy_, d, layout));
    least_.push_back(
        amplified ? whole_below(resolutions_.back().required_multiplier * ledger::kNano) : 0);
    admitted_[i].least_multiplier = least_.back();
    names_.push_back(d.data_class);
    routes_.plans.push_back(resolutions_.back().plan);
  }
  routes_.injection = injection_;
}

void Corpus::begin(Identity identity, const mechanism::Mechanism& mechanism, std::uint64_t step) {
  identity_ = std::move(identity);
  steps_ = mechanism.config().privacy.target_steps.value();
  steps_per_epoch_ = mechanism.sampling().steps_per_epoch;
  terms_ = terms_of(mechanism);
  check_terms(mechanism);
  std::vector<admission::UseStore::Claim> claims;
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    if (!policy_.classes.at(descriptors_[i].data_class).amplified) continue;
    const std::uint64_t cap = resolutions_[class_of_[i]].most_uses;
    if (steps_ > cap)
      throw Error(ErrorCode::kPrivacyBudgetExceeded, "corpus",
                  fmt::format("class {} is promised {} steps, and the run has {}",
                              descriptors_[i].data_class, cap, steps_));
    claims.push_back({hashes_[i], steps_, cap});
  }
  if (!claims.empty()) {
    const std::vector<std::uint8_t> reserved = uses_->reserve(identity_.uses, kSchedule, claims);
    if (std::ranges::count(reserved, 0) != 0)
      throw Error(
          ErrorCode::kPrivacyBudgetExceeded, "corpus",
          fmt::format("of {} contributions of amplified classes the schedule of steps has not "
                      "{} left: {}; plan fewer steps, or leave them out of the descriptors",
                      claims.size(), steps_, "USES_EXHAUSTED"));
  }
  enter_epoch(step);
}

void Corpus::enter_epoch(std::uint64_t step) {
  const std::uint64_t epoch = step / steps_per_epoch_;
  if (epoch_ == epoch || step >= steps_) return;
  std::vector<ledger::Terms> terms = terms_;
  for (ledger::Terms& t : terms)
    t.steps = std::min(steps_per_epoch_, steps_ - epoch * steps_per_epoch_);
  const std::uint64_t number = epoch - identity_.first_epoch;
  ledger::Refusals refused;
  if (identity_.ledger == run_) refused.counts.assign(refused_.begin(), refused_.end());
  ledger_->reserve({identity_.ledger, number, at_, std::move(terms)}, admitted_, refused);
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
    if (absent_[record] != 0) {
      out.push_back(kNoRoute);
      continue;
    }
    if (!policy_.classes.at(names_[c]).amplified) {
      places.push_back(out.size());
      claims.push_back({hashes_[record], 1, resolutions_[c].most_uses});
    }
    out.push_back(c);
  }
  if (claims.empty()) return out;
  const std::vector<std::uint8_t> reserved = uses_->reserve(identity_.uses, step, claims);
  for (std::size_t i = 0; i < claims.size(); ++i)
    if (reserved[i] == 0) out[places[i]] = kNoRoute;
  return out;
}

std::vector<ledger::Terms> Corpus::terms_of(const mechanism::Mechanism& mechanism) const {
  std::map<std::string, ledger::Terms> by_class;
  for (std::size_t c = 0; c < resolutions_.size(); ++c) {
    ledger::Terms& t = by_class[names_[c]];
    const std::uint64_t deviation = deviation_of(resolutions_[c].plan, policy_);
    t.deviation = t.deviation == 0 ? deviation : std::min(t.deviation, deviation);
    t.admissibility_class = names_[c];
    t.profile = encode(policy_.classes.at(names_[c]).profile);
    t.family = mechanism.config().privacy.noise_family == mechanism::NoiseFamily::kGaussian
                   ? ledger::Family::kGaussian
                   : ledger::Family::kRoundedGaussian;
    t.adjacency = mechanism.sampling().adjacency;
    std::visit(SamplerTerms{t}, mechanism.sampling().sampling());
    t.steps = mechanism.sampling().steps_per_epoch;
  }
  std::vector<ledger::Terms> out;
  for (auto& [name, terms] : by_class) out.push_back(std::move(terms));
  return out;
}

// The ledger signs no more noise than a use has, and no less than the samplers leave out of it.
void Corpus::check_terms(const mechanism::Mechanism& mechanism) const {
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    const std::uint32_t c = class_of_[i];
    if (c < i && i != 0 && class_of_[i - 1] == c) continue;
    const auto terms = std::ranges::find(terms_, names_[c], &ledger::Terms::admissibility_class);
    const Descriptor& d = descriptors_[i];
    const bool amplified = policy_.classes.at(names_[c]).amplified.has_value();
    const ledger::Bound bound{
        d.clip_norm.units, amplified ? ledger::Promise::kAmplified : ledger::Promise::kWorstCase,
        amplified ? least_[c] : d.noise_multiplier.units, amplified ? 0 : d.occurrences, 0};
    const auto recorded =
        accounting::gaussian_noise_multiplier(ledger::event_of(*terms, bound).event.mechanism());
    const auto used = accounting::gaussian_noise_multiplier(mechanism.use_of(c));
    if (!recorded || !used || !(*recorded <= *used))
      refuse(
          fmt::format("class {} would be recorded with more noise than its uses have", names_[c]));
  }
  const mechanism::DpConfig& privacy = mechanism.config().privacy;
  const std::uint64_t slots = injection_ == mechanism::Injection::kPerStep ? 1
                              : injection_ == mechanism::Injection::kPerMicrobatch
                                  ? privacy.gradient_accumulation_steps
                                  : mechanism.most_records();
  const double delta = static_cast<double>(ledger_->header().delta) / ledger::kAtto;
  if (mechanism::sampler_delta(privacy.noise_family, mechanism.layout().private_parameters(),
                               2 * steps_ * slots, privacy.target_epsilon) > 0x1p-50 * delta)
    refuse(
        "noise.family must be rounded_gaussian: with so many parameters and steps the ledger's "
        "delta has no room for what the sampler of gaussian noise leaves out");
}

std::string Corpus::sentence() const {
  std::uint64_t total = 0;
  std::string codes;
  for (const auto& [code, count] : refused_) {
    total += count;
    codes += fmt::format("{}{} {}", codes.empty() ? " (" : ", ", count, code);
  }
  return fmt::format("corpus {}: {} contributions admitted, {} refused{}{}", policy_.corpus,
                     descriptors_.size(), total, codes, codes.empty() ? "" : ")");
}

cbor::Value Corpus::summary(const mechanism::Mechanism& mechanism) const {
  std::vector<cbor::Entry> refused;
  for (const auto& [code, count] : refused_) refused.push_back({code, count});
  std::vector<std::uint64_t> records(resolutions_.size());
  for (const std::uint32_t c : class_of_) ++records[c];
  std::vector<cbor::Value> classes;
  for (std::size_t c = 0; c < resolutions_.size(); ++c) {
    const admission::Resolution& r = resolutions_[c];
    const auto& amplified = policy_.classes.at(names_[c]).amplified;
    // The account of one contribution, by the accountant of the corpus: all its uses, or steps.
    const double delta =
        amplified ? amplified->delta.from_below() : mechanism.config().privacy.target_delta;
    const auto accountant =
        accounting::make_accountant(std::string(to_string(policy_.accountant)), {});
    accountant->compose(
        accounting::Event(mechanism.use_of(c),
                          amplified ? accounting::Sampling(accounting::Poisson{
                                          std::min(1.0, amplified->rate.from_above())})
                                    : accounting::Sampling(accounting::NoSampling{}),
                          accounting::Adjacency::kZeroOut),
        r.most_uses);
    classes.push_back(
        cbor::map({{"class", names_[c]},
                   {"contributions", records[c]},
                   {"route", ByteView(mechanism::hash_of(r.plan))},
                   {"noise_multiplier", mechanism.router()->noise_multiplier(c)},
                   {"most_uses", r.most_uses},
                   {"gdp_mu", r.gdp_mu ? cbor::Value(*r.gdp_mu) : cbor::Value(nullptr)},
                   {"epsilon", accountant->epsilon(delta).epsilon.upper},
                   {"delta", delta},
                   {"accountant", to_string(policy_.accountant)},
                   {"adjacency", "zero_out"}}));
  }
  return cbor::map({{"name", policy_.corpus},
                    {"policy_hash", ByteView(hash_of(policy_))},
                    {"ledger", cbor::map({{"origin", ledger_->header().origin}, {"run", run_}})},
                    {"profile_schema", admission::kProfileSchema},
                    {"admitted", descriptors_.size()},
                    {"refused", cbor::map(std::move(refused))},
                    {"classes", cbor::array(std::move(classes))}});
}

}  // namespace discreet::training
