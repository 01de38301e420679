// Runs on signed contributions and the ledger they append to.
#include "discreet/training/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "discreet/admission/anchor_file.h"
#include "discreet/admission/descriptor.h"
#include "discreet/admission/uses.h"
#include "discreet/base/error.h"
#include "discreet/base/error_testing.h"
#include "discreet/base/json.h"
#include "discreet/data/open.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/verify.h"
#include "discreet/ledger/withdrawal.h"
#include "discreet/training/train_testing.h"

namespace discreet::training {
namespace {

using namespace admission;

constexpr const char* kPolicy =
    "corpus: notes\naccountant: ACCOUNTANT\nfloors: {clip_norm: 0.01, noise_multiplier: 0.3}\n"
    "most_validity_days: 800\nepoch_seconds: 86400\nretention_epochs: 12\n"
    "noise: {stddev: 4, clipping: flat}\nclasses:\n"
    "  clinical: {clip_norm: 1, noise_multiplier: 1, most_occurrences: 6, profile: {layers: [1, "
    "1]}}\n"
    "  open: {clip_norm: 2, noise_multiplier: 0.4, most_occurrences: 20, profile: {whole: "
    "true}EXTRA}\n"
    "keys:\n  - {name: hospital, public_key: KEY, classes: [clinical, open]}\n";

// The small run, its lines signed: half clinical, half open; line 3 by nobody.
class SmallCorpus : public SmallRun {
 public:
  explicit SmallCorpus(const std::string& accountant = "rdp", const std::string& amplified = {},
                       int ends_early = -1) {
    std::string policy = kPolicy;
    replace(policy, "ACCOUNTANT", accountant);
    replace(policy, "EXTRA", amplified);
    if (!amplified.empty()) replace(policy, "most_occurrences: 20", "most_occurrences: 60");
    replace(policy, "KEY", to_hex(hospital.public_key().bytes()));
    put("policy.yaml", policy);
    put("steward.key", steward.to_pem({}));
    std::filesystem::permissions(folder / "steward.key", std::filesystem::perms(0600));
    std::string anchors;
    std::ifstream lines(folder / "train.csv");
    std::string line;
    std::getline(lines, line);
    for (int i = 0; std::getline(lines, line); ++i) {
      if (i == 3) continue;
      Descriptor d;
      d.contributor = "p" + std::to_string(i);
      d.data_class = i % 2 != 0 ? "clinical" : "open";
      d.clip_norm = {i % 2 != 0 ? Scaled::kUnit : 2 * Scaled::kUnit};
      d.noise_multiplier = {i % 2 != 0 ? Scaled::kUnit : Scaled::kUnit * 4 / 10};
      d.occurrences = i % 2 != 0 ? 6 : 20;
      if (i % 2 == 0 && !amplified.empty()) {
        d.promise = admission::Promise::kAmplified;
        d.occurrences = 60;
        d.noise_multiplier = {4 * Scaled::kUnit};
      }
      d.not_before = kAt - 86'400;
      d.not_after = i == ends_early ? kAt - 3600 : kAt + 100 * 86'400;
      d.corpus = "notes";
      d.content_anchor = sha256(bytes_of(line));
      d.nonce[0] = static_cast<std::uint8_t>(i);
      const Bytes bytes = encode(d);
      hashes.push_back(sha256(bytes));
      anchors += R"({"descriptor": ")" + to_hex(bytes) + R"(", "attestation": ")" +
                 to_hex(attest(hospital, bytes)) + "\"}\n";
    }
    put("anchors.jsonl", anchors);
    config.model.kind = ModelKind::kMlp;
    config.model.hidden = {6};
    config.corpus.policy = (folder / "policy.yaml").string();
    config.corpus.descriptors = (folder / "anchors.jsonl").string();
    config.corpus.uses = (folder / "corpus.uses").string();
    config.corpus.ledger = ledger().string();
    config.corpus.ledger_key = (folder / "steward.key").string();
    config.corpus.at = instant_text(kAt);
    config.privacy.adjacency = accounting::Adjacency::kZeroOut;
    config.privacy.target_epsilon = 60;
  }

  std::filesystem::path ledger() const { return folder / "ledger.db"; }
  ledger::Verification verified(const char* run = nullptr) const {
    ledger::VerifyOptions options;
    options.key = steward.public_key();
    if (run != nullptr) options.checkpoint = read(run, "ledger.note");
    return ledger::verify(ledger(), options);
  }
  void withdraw(std::size_t i) const {
    ledger::Ledger open =
        ledger::Ledger::open(ledger(), SigningKey::from_seed(Bytes(32, 2)), {}, 0);
    open.withdraw(std::vector{ledger::sign_withdrawal(hospital, "notes", hashes[i], "", 7)});
  }
  // Trains until the step, or to the end.
  RunResult train_to(const char* name, std::uint64_t step, bool resume = false,
                     const std::function<void(std::uint64_t)>& each = {}) const {
    std::atomic<bool> stop = false;
    TrainOptions o = options(name);
    o.resume = resume;
    o.stop = &stop;
    o.progress = [&](const Progress& p) {
      stop = p.step == step;
      if (each) each(p.step);
    };
    return training::train(resolved(), o);
  }
  ledger::Trace trace(std::size_t i) const {
    ledger::Store store(ledger(), ledger::Store::Mode::kRead);
    return ledger::trace(store, hashes[i]);
  }
  void put(const char* name, const std::string& text) const {
    std::ofstream(folder / name) << text;
  }
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  }

  // Today: a run does not start in the past.
  static inline const Instant kAt = std::chrono::duration_cast<std::chrono::seconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count();
  SigningKey hospital = SigningKey::from_seed(Bytes(32, 1));
  SigningKey steward = SigningKey::from_seed(Bytes(32, 2));
  std::vector<Digest> hashes;
};

TEST(GovernedRun, IsNotResumedOverALedgerThatWasRolledBackTogetherWithItsNote) {
  const SmallCorpus corpus;
  const std::filesystem::path note = corpus.folder / "run" / "ledger.note";
  const auto put_back = [&](const char* suffix) {
    for (const std::filesystem::path& file : {corpus.ledger(), note})
      std::filesystem::copy_file(file.string() + suffix, file,
                                 std::filesystem::copy_options::overwrite_existing);
  };
  const auto keep = [&](const char* suffix) {
    for (const std::filesystem::path& file : {corpus.ledger(), note})
      std::filesystem::copy_file(file, file.string() + suffix);
  };
  corpus.train_to("run", 12, false, [&](std::uint64_t step) {
    // The note is sealed before the first step.
    EXPECT_TRUE(std::filesystem::exists(corpus.folder / "run" / "checkpoint.cbor"));
    if (step == 5) keep(".first");
  });
  keep(".second");
  put_back(".first");
  EXPECT_EQ(code_of([&] { corpus.train_to("run", 30, true); }), ErrorCode::kMalformed);
  put_back(".second");
  EXPECT_EQ(corpus.train_to("run", 30, true).steps, 30u);
}

// 30 steps, 10 per epoch.
TEST(GovernedRun, ReservesEveryEpochOnceForEveryContribution) {
  const SmallCorpus corpus;
  corpus.train("run");
  const ledger::Verification found = corpus.verified("run");
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.header->origin, "notes");
  EXPECT_EQ(found.counts.admissions, 199u);
  EXPECT_EQ(found.counts.refusals, 1u);
  EXPECT_EQ(found.counts.epochs, 3u);
  EXPECT_EQ(found.counts.uses, 3 * 199u);
  EXPECT_EQ(found.attestations, 199u);
  // The independent account: 30 steps at rate 0.1; noise 4 on records clipped to 1 and to 2.
  for (const ledger::ClassTotal& c : found.classes) {
    const auto accountant = accounting::make_accountant("rdp");
    accountant->compose(
        accounting::Event(accounting::Gaussian{c.admissibility_class == "clinical" ? 4. : 2.},
                          accounting::Poisson{.1}, accounting::Adjacency::kZeroOut),
        30);
    const double epsilon = accountant->epsilon(1e-5).epsilon.upper;
    const double recorded = static_cast<double>(c.most_spent) / ledger::kMicro;
    EXPECT_GE(recorded, epsilon);
    EXPECT_NEAR(recorded, epsilon, 1e-5) << c.admissibility_class;
  }
  // Executed again under the same name, it is there once; another run of the corpus adds to it.
  corpus.train("run", true);
  EXPECT_EQ(corpus.verified("run").size, found.size);
  corpus.train("another");
  EXPECT_EQ(corpus.verified("run").counts.epochs, 6u);
  EXPECT_EQ(corpus.verified("another").counts.admissions, 199u);
}

TEST(GovernedRun, StoppedAndResumedAnywhereItReservesWhatAWholeRunDoes) {
  const SmallCorpus whole;
  whole.train("run");
  const auto expected = whole.verified().counts;
  const SmallCorpus corpus;
  corpus.train_to("run", 1);
  for (const std::uint64_t step : {5, 10, 13, 20, 21, 29}) corpus.train_to("run", step, true);
  corpus.train("run", true);
  const ledger::Verification found = corpus.verified("run");
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.uses, expected.uses);
  EXPECT_EQ(found.counts.epochs, expected.epochs);
  EXPECT_EQ(found.counts.refusals, expected.refusals);
  EXPECT_EQ(found.counts.admissions, expected.admissions);
}

TEST(GovernedRun, AWithdrawalTakesEffectAtTheNextEpochAndAtEveryLaterAdmission) {
  const SmallCorpus corpus;
  corpus.train_to("run", 0, false, [&](std::uint64_t step) {
    if (step == 12) corpus.withdraw(5);
  });
  const ledger::Verification found = corpus.verified("run");
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(corpus.trace(5).uses.size(), 2u);  // the second epoch had started
  EXPECT_EQ(corpus.trace(6).uses.size(), 3u);
  // A run that starts later does not admit it.
  corpus.train("later");
  EXPECT_EQ(corpus.trace(5).uses.size(), 2u);
  EXPECT_EQ(corpus.trace(6).uses.size(), 6u);
  EXPECT_NE(corpus.read("later", "trace.jsonl").find(R"("WITHDRAWN":1)"), std::string::npos);
  EXPECT_EQ(corpus.read("run", "trace.jsonl").find("WITHDRAWN"), std::string::npos);
}

// The withdrawn record keeps its place and adds nothing: a run in which its payload was never used
// after the withdrawal is the same run, resumed or not.
TEST(GovernedRun, AWithdrawalWhileARunIsStoppedIsHonouredWhenItGoesOn) {
  const SmallCorpus corpus;
  corpus.train_to("run", 14);
  corpus.withdraw(5);
  corpus.train("run", true);
  ASSERT_TRUE(corpus.verified("run").ok) << corpus.verified("run").problem;
  EXPECT_EQ(corpus.trace(5).uses.size(), 2u);
  // From its start again, on the ledger as it is now: the same bits.
  TrainOptions again = corpus.options("again");
  again.secret = corpus.folder / "run" / "secret.key";
  again.again = true;
  again.resume = true;
  std::filesystem::create_directory(corpus.folder / "again");
  training::train(corpus.resolved(), again);
  EXPECT_EQ(corpus.read("again", "model.safetensors"), corpus.read("run", "model.safetensors"));
  EXPECT_EQ(corpus.verified("run").counts.epochs, 3u) << "executing a run again appends nothing";
}

// What follows sees the data of a file without these lines, in every bit.
TEST(GovernedRun, TakesRefusedRecordsOutOfTheData) {
  const SmallCorpus corpus;
  const auto open = [&] {
    return data::open_data(corpus.resolved(), {}, data::BadRow::kRefuse, nullptr, false).train;
  };
  data::Dataset admitted = open();
  const std::size_t all = admitted.rows;
  const Corpus judge(corpus.resolved(), admitted, 1, "run", corpus.folder / "note",
                     Corpus::Writes::kNothing);
  EXPECT_EQ(judge.admitted(), all - 1);
  std::istringstream lines(corpus.read(".", "train.csv"));
  std::string rest, line;
  for (int i = -1; std::getline(lines, line); ++i)
    if (i != 3) rest += line + "\n";  // which nobody signed
  corpus.put("train.csv", rest);
  const data::Dataset without = open();
  EXPECT_EQ(admitted.rows, without.rows);
  EXPECT_EQ(admitted.x, without.x);
  EXPECT_EQ(admitted.label, without.label);
  EXPECT_EQ(admitted.target, without.target);
  EXPECT_EQ(admitted.anchors, without.anchors);
}

// The ledger would state an epsilon for noise that everybody can remove.
TEST(GovernedRun, IsPrivateOrDoesNotStart) {
  SmallCorpus corpus;
  corpus.config.privacy.secure = false;
  EXPECT_EQ(code_of([&] { corpus.train("run"); }), ErrorCode::kInvalidDpConfig);
  corpus.config.privacy.secure = true;
  corpus.config.privacy.debug = true;
  EXPECT_EQ(code_of([&] { corpus.train("run"); }), ErrorCode::kInvalidDpConfig);
  EXPECT_FALSE(std::filesystem::exists(corpus.ledger()));
}

TEST(GovernedRun, DoesNotStartOnADayToCome) {
  SmallCorpus corpus;
  corpus.config.corpus.at = instant_text(SmallCorpus::kAt + 2 * 86'400);
  EXPECT_EQ(code_of([&] { corpus.train("run"); }), ErrorCode::kInvalidDpConfig);
  EXPECT_FALSE(std::filesystem::exists(corpus.ledger()));
  corpus.config.corpus.at = instant_text(SmallCorpus::kAt + 3600);
  corpus.train("run");
}

// Anyone who has a key of the policy and knows a line can sign for it, under weaker terms.
TEST(GovernedRun, UsesNoRecordForWhichAnotherContributorSigned) {
  const SigningKey library = SigningKey::from_seed(Bytes(32, 7));
  for (const bool withdrawn : {false, true}) {
    SmallCorpus corpus;
    corpus.put("policy.yaml", corpus.read(".", "policy.yaml") + "  - {name: library, public_key: " +
                                  to_hex(library.public_key().bytes()) + ", classes: [open]}\n");
    const std::string honest = corpus.read(".", "anchors.jsonl");
    Descriptor d =
        decode_descriptor(parse_anchors(honest, "anchors.jsonl").at(5).contribution.descriptor);
    d.contributor = "mallory";
    d.data_class = "open";
    d.clip_norm = {2 * Scaled::kUnit};
    d.noise_multiplier = {Scaled::kUnit * 4 / 10};
    d.occurrences = 20;
    const Bytes bytes = encode(d);
    const std::string forged = R"({"descriptor": ")" + to_hex(bytes) + R"(", "attestation": ")" +
                               to_hex(attest(library, bytes)) + "\"}\n";
    corpus.put("anchors.jsonl", withdrawn ? honest + forged : forged + honest);
    if (withdrawn) {
      corpus.put("withdrawn.txt", to_hex(corpus.hashes[5]) + "\n");
      corpus.config.corpus.withdrawn = (corpus.folder / "withdrawn.txt").string();
    }
    corpus.train("run");
    const UseStore uses(corpus.folder / "corpus.uses");
    EXPECT_EQ(uses.used(sha256(bytes)), 0u);
    EXPECT_EQ(uses.used(corpus.hashes[5]), 0u);
    std::uint64_t all = 0;
    for (const Digest& hash : corpus.hashes) all += uses.used(hash);
    EXPECT_GT(all, 100u);
    // Nothing public reveals it: the ledger has as many contributions as without.
    EXPECT_EQ(corpus.verified("run").counts.admissions, 199u);
  }
}

TEST(GovernedRun, IsNotResumedWithOtherContributions) {
  const SmallCorpus corpus;
  const std::string all = corpus.read(".", "anchors.jsonl");
  const std::string fewer = all.substr(all.find('\n') + 1);
  corpus.put("anchors.jsonl", fewer);
  corpus.train_to("run", 5);
  const std::string model = corpus.read("run", "model.safetensors");
  std::string other = fewer.substr(fewer.find('\n') + 1) + all.substr(0, all.find('\n') + 1);
  for (const std::string& text : {all, fewer.substr(fewer.find('\n') + 1), other}) {
    corpus.put("anchors.jsonl", text);
    EXPECT_EQ(code_of([&] { corpus.train("run", true); }), ErrorCode::kInvalidInput);
    EXPECT_EQ(corpus.read("run", "model.safetensors"), model);
  }
  corpus.put("anchors.jsonl", fewer);
  EXPECT_EQ(corpus.train_to("run", 0, true).steps, 30u);
  EXPECT_EQ(corpus.verified("run").counts.uses, 3 * 198u);
  // Another run brings it: it took no part in the epochs before.
  corpus.put("anchors.jsonl", all);
  corpus.train("another");
  const auto name = [&](const char* run) {
    const std::string trace = corpus.read(run, "trace.jsonl");
    return trace.substr(trace.find(R"("run":")") + 7, 32);
  };
  const CorpusLedger ledger(corpus.resolved(), read_policy(corpus.read(".", "policy.yaml"), ""),
                            corpus.folder / "run" / "ledger.note", false);
  const Instant ends = SmallCorpus::kAt + 100 * 86'400;
  Digest unknown{};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_FALSE(ledger.takes_part(name("run"), epoch, corpus.hashes[0], ends));
    EXPECT_TRUE(ledger.takes_part(name("run"), epoch, corpus.hashes[1], ends));
    EXPECT_TRUE(ledger.takes_part(name("another"), epoch, corpus.hashes[0], ends));
    EXPECT_FALSE(ledger.takes_part(name("another"), epoch, unknown, ends));
  }
  EXPECT_FALSE(ledger.holds(unknown));
}

// The date of the configuration was before its end, as when a run is resumed later.
TEST(GovernedRun, ConsentThatHasEndedByTheClockIsNotUsed) {
  SmallCorpus corpus("rdp", {}, 0);
  std::string policy = corpus.read(".", "policy.yaml");
  SmallCorpus::replace(policy, "epoch_seconds: 86400", "epoch_seconds: 60");
  corpus.put("policy.yaml", policy);
  corpus.config.corpus.at = instant_text(SmallCorpus::kAt - 7200);
  corpus.train_to("run", 12);
  corpus.train("run", true);
  const ledger::Verification found = corpus.verified("run");
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.epochs, 3u);
  EXPECT_EQ(found.counts.uses, 3 * 198u);
  EXPECT_TRUE(corpus.trace(0).uses.empty());
  const std::string trace = corpus.read("run", "trace.jsonl");
  EXPECT_NE(trace.find(R"("admitted":199)"), std::string::npos);
  const CorpusLedger ledger(corpus.resolved(), read_policy(corpus.read(".", "policy.yaml"), ""),
                            corpus.folder / "run" / "ledger.note", false);
  EXPECT_FALSE(ledger.takes_part(trace.substr(trace.find(R"("run":")") + 7, 32), 0,
                                 corpus.hashes[0], SmallCorpus::kAt - 3600));
}

TEST(GovernedRun, SummarisesWhatEndedBeforeTheRetentionHorizonWhenItReservesAnEpoch) {
  const SmallCorpus corpus;
  corpus.train("run");
  Descriptor d;
  d.contributor = "gone";
  d.data_class = "open";
  d.clip_norm = {2 * Scaled::kUnit};
  d.noise_multiplier = {Scaled::kUnit};
  d.occurrences = 1;
  d.not_before = SmallCorpus::kAt - 200 * 86'400;
  d.not_after = SmallCorpus::kAt - 14 * 86'400;
  d.corpus = "notes";
  const Bytes bytes = encode(d);
  {
    ledger::Ledger open =
        ledger::Ledger::open(corpus.ledger(), SigningKey::from_seed(Bytes(32, 2)));
    open.admit(std::vector{ledger::Ledger::Contribution{bytes, attest(corpus.hospital, bytes),
                                                        corpus.hospital.public_key()}});
  }
  corpus.train("later");
  const ledger::Verification found = corpus.verified("run");
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.summarised, 1u);
  ASSERT_EQ(found.summarised.size(), 1u);
  EXPECT_EQ(found.summarised[0].contributions, 1u);
  EXPECT_EQ(found.summarised[0].uses, 0u);
}

// Otherwise the same noise would be added to the sum over other contributions, and nothing charged.
TEST(GovernedRun, ThatLostItsTraceIsNotBegunAgainUnderItsKey) {
  const SmallCorpus corpus;
  corpus.train("run");
  const std::uint64_t size = corpus.verified("run").size;
  for (const char* file : {"trace.jsonl", "trace.seal", "checkpoint.cbor", "model.safetensors"})
    std::filesystem::remove(corpus.folder / "run" / file);
  const std::string all = corpus.read(".", "anchors.jsonl");
  for (const std::string& text : {all, all.substr(all.find('\n') + 1)}) {
    corpus.put("anchors.jsonl", text);
    EXPECT_EQ(code_of([&] { corpus.train("run", true); }), ErrorCode::kInvalidInput);
    EXPECT_FALSE(std::filesystem::exists(corpus.folder / "run" / "trace.jsonl"));
  }
  EXPECT_EQ(corpus.verified("run").size, size);
  corpus.train("another");
}

// What a process leaves that is killed before the ledger has its first epoch.
TEST(GovernedRun, WithAHeaderAloneItBegins) {
  const SmallCorpus corpus;
  corpus.train_to("run", 1);
  const std::string trace = corpus.read("run", "trace.jsonl");
  for (const std::filesystem::path& file :
       {corpus.ledger(), corpus.folder / "corpus.uses", corpus.folder / "run" / "ledger.note",
        corpus.folder / "run" / "trace.seal", corpus.folder / "run" / "checkpoint.cbor",
        corpus.folder / "run" / "model.safetensors"})
    std::filesystem::remove(file);
  corpus.put("run/trace.jsonl", trace.substr(0, trace.find('\n') + 1));
  corpus.train("run", true);
  EXPECT_EQ(corpus.verified("run").counts.epochs, 3u);
}

TEST(GovernedRun, ExecutedAgainItNeedsToBeInTheLedger) {
  const SmallCorpus corpus;
  corpus.train("run");
  std::filesystem::remove(corpus.ledger());
  SmallCorpus other;
  other.train("run");
  std::filesystem::copy(other.ledger(), corpus.ledger());
  TrainOptions again = corpus.options("again");
  again.secret = corpus.folder / "run" / "secret.key";
  again.again = true;
  again.resume = true;
  std::filesystem::create_directory(corpus.folder / "again");
  EXPECT_THROW(training::train(corpus.resolved(), again), Error);
}

TEST(GovernedRun, RefusesALedgerOfAnotherPolicyARolledBackOneAndALostOne) {
  SmallCorpus corpus;
  corpus.train_to("run", 5);
  std::filesystem::copy(corpus.ledger(), corpus.folder / "old.db");
  corpus.train_to("run", 15, true);
  const auto message = [&](const char* run, bool resume) -> std::string {
    try {
      corpus.train(run, resume);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  std::filesystem::copy(corpus.ledger(), corpus.folder / "good.db");
  std::filesystem::copy(corpus.folder / "old.db", corpus.ledger(),
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(message("run", true).find("earlier checkpoint"), std::string::npos)
      << message("run", true);
  std::filesystem::remove(corpus.ledger());
  EXPECT_NE(message("run", true).find("is missing"), std::string::npos) << message("run", true);
  std::filesystem::copy(corpus.folder / "good.db", corpus.ledger());
  EXPECT_EQ(message("run", true), "");

  std::string policy = corpus.read(".", "policy.yaml");
  SmallCorpus::replace(policy, "stddev: 4", "stddev: 5");
  corpus.put("policy.yaml", policy);
  EXPECT_NE(message("other", false).find("another contract needs another ledger"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(corpus.folder / "other" / "trace.jsonl"));
}

// An amplified class: what the resolver calibrated is what the ledger composes, to the last step.
TEST(GovernedRun, AnAmplifiedPromiseIsKeptInTheLedgerToItsLastStep) {
  // The policy's accountant is looser than the one the noise was calibrated by.
  SmallCorpus corpus("rdp", ", amplified: {rate: 0.1, steps: 60, delta: 0.00001}");
  corpus.config.privacy.target_steps = 60;
  corpus.train("run");
  const ledger::Verification found = corpus.verified("run");
  ASSERT_TRUE(found.ok) << found.problem;
  const auto open =
      std::ranges::find(found.classes, "open", &ledger::ClassTotal::admissibility_class);
  const auto one = accounting::make_accountant("pld");
  one->compose(accounting::Event(accounting::Gaussian{4}, accounting::NoSampling{},
                                 accounting::Adjacency::kZeroOut));
  const double promised = one->epsilon(1e-5).epsilon.upper;
  EXPECT_LE(static_cast<double>(open->most_spent) / ledger::kMicro, promised + 2e-6);  // rounded up
  EXPECT_GE(static_cast<double>(open->most_spent) / ledger::kMicro, promised - 3e-5);
  EXPECT_THROW(corpus.train("more"), Error) << "the schedule is used up";
}

// Nothing of the payloads: the same lines, read as other numbers with other labels, leave the same
// ledger, except for the random name of the run and for signatures.
std::vector<std::string> public_content(const SmallCorpus& corpus) {
  std::vector<std::string> out;
  std::string run;
  ledger::Store store(corpus.ledger(), ledger::Store::Mode::kRead);
  ledger::Store::Leaves leaves(store, 0);
  for (ledger::Store::Leaf leaf; leaves.next(leaf);) {
    const ledger::Entry entry = ledger::decode_entry(leaf.content);
    std::string bytes(leaf.content.begin(), leaf.content.end());
    if (const auto* terms = std::get_if<ledger::Terms>(&entry)) run = terms->run;
    if (std::holds_alternative<ledger::Signed>(entry)) bytes = "signed";
    for (std::size_t at; !run.empty() && (at = bytes.find(run)) != std::string::npos;)
      bytes.replace(at, run.size(), "run");
    out.push_back(bytes);
  }
  ledger::Store::Openings openings(store);
  for (ledger::Store::Opening o; openings.next(o);)
    out.emplace_back(o.descriptor.begin(), o.descriptor.end());
  return out;
}

TEST(GovernedRun, NothingInTheLedgerDependsOnThePayloads) {
  SmallCorpus one, other;
  other.config.data.classes = {"right", "left"};
  other.config.data.numeric = {{"x", {-1, 1}}, {"y", {-40, 40}}};
  // Later than the clock, which may come to another hour between them.
  one.config.corpus.at = other.config.corpus.at = instant_text(SmallCorpus::kAt + 7200);
  one.train("run");
  other.train("run");
  EXPECT_NE(one.read("run", "model.safetensors"), other.read("run", "model.safetensors"));
  const auto a = public_content(one), b = public_content(other);
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(a, b);
  EXPECT_GT(a.size(), 3 * 199u);
  // The sizes of tables, too: no row beside these.
  EXPECT_EQ(std::filesystem::file_size(one.ledger()), std::filesystem::file_size(other.ledger()));
}

}  // namespace
}  // namespace discreet::training
