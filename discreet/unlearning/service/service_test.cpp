#include "discreet/unlearning/service/service.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>
#include <unordered_set>

#include "discreet/base/error.h"
#include "discreet/base/sqlite.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/verify.h"
#include "discreet/unlearning/service/service_testing.h"

namespace discreet::unlearning {
namespace {

using namespace testing;

const std::vector<std::string> kOne = {"subject-1"};

struct Files {
  Folder folder;
  std::filesystem::path store = folder / "model.db";
  ledger::Ledger ledger = new_ledger(folder / "ledger.db");
};

std::string sentence_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.sentence();
  }
  return "(nothing was thrown)";
}

TEST(Service, AnExactModelIsThatOfNeverHavingInsertedAndSoIsItsFile) {
  Files with, never;
  Service::create(with.store, "m", exact_options());
  Service::create(never.store, "m", exact_options());
  Service a(with.store), b(never.store);
  a.insert("all", rows(0, 50));
  a.publish();
  std::vector<Row> others = rows(0, 50);
  others.erase(others.begin() + 1);
  b.insert("others", others);
  const auto receipts = a.erase("delete", kOne, with.ledger, kToday);
  ASSERT_EQ(receipts.size(), 1u);
  EXPECT_EQ(receipts[0].records, std::vector<RecordId>{1});
  EXPECT_EQ(std::get<ExactEngine>(a.learner()).state_digest(),
            std::get<ExactEngine>(b.learner()).state_digest());
  b.publish();
  EXPECT_EQ(a.predict(row(60).x).value, b.predict(row(60).x).value)
      << "served at once, without another publish";
}

TEST(Service, AReceiptIsSignedSaltedAndSaysNothingOfTheRecord) {
  Files f;
  Service::create(f.store, "m", erm_options());
  Service s(f.store);
  s.insert("all", rows(0, 50));
  const DeletionReceipt receipt = s.erase("delete", kOne, f.ledger, kToday).at(0);
  EXPECT_EQ(receipt.entry.engine, "erm");
  EXPECT_EQ(receipt.entry.promise, ledger::DeletionPromise::kPerRecord);
  EXPECT_EQ(receipt.entry.epsilon, 1'000'000u);
  EXPECT_NEAR(static_cast<double>(receipt.entry.residual), 1e-9 / 1e-2 * 1e18, 1);
  EXPECT_EQ(receipt.entry.commitment,
            ledger::deletion_commitment(receipt.salt, "subject-1", receipt.records));
  EXPECT_NE(receipt.entry.commitment,
            ledger::deletion_commitment(Bytes(32), "subject-1", receipt.records));
  EXPECT_EQ(receipt.salt.size(), 32u);

  // Anyone who has leaf, receipt and key can see that it was signed.
  const Bytes leaf = ledger::encode(receipt.entry);
  const auto placed = f.ledger.receipts({&leaf, 1}).at(0);
  EXPECT_EQ(placed.position, f.ledger.state().size() - 1);
  EXPECT_TRUE(ledger::verify_inclusion_receipt(placed.receipt, leaf,
                                               ledger::testing::ledger_key().public_key()));
  const Bytes other_leaf = ledger::encode(ledger::Deletion{});
  EXPECT_THROW(f.ledger.receipts({&other_leaf, 1}), Error);

  // Equal except for number, commitment and time, whatever the records were.
  Files g;
  Service::create(g.store, "m", erm_options());
  Service t(g.store);
  std::vector<Row> other = rows(100, 140);
  other.push_back(row(1));
  for (Row& r : other) r.x[0] *= 0.5;
  t.insert("all", other);
  ledger::Deletion another = t.erase("delete", kOne, g.ledger, kToday).at(0).entry;
  another.commitment = receipt.entry.commitment;
  EXPECT_EQ(ledger::encode(another), ledger::encode(receipt.entry));
}

TEST(Service, SpecificationReceiptsSayNotCertified) {
  Files f;
  Service::create(f.store, "m", stream_options(Accounting::kSpecification, 10));
  Service s(f.store);
  s.insert("all", rows(0, 600));
  EXPECT_EQ(s.status().metrics.at("phase"), MemoryPair::Metric(std::string("INTERLEAVING")));
  const auto entry = s.erase("delete", kOne, f.ledger, kToday).at(0).entry;
  EXPECT_EQ(entry.promise, ledger::DeletionPromise::kNotCertified);
  EXPECT_EQ(s.status().guarantee, "not certified");
  EXPECT_EQ(s.publish().guarantee, "not certified");
}

TEST(Service, LinksADeletionToItsWithdrawal) {
  Files f;
  const auto who = ledger::testing::contributions(0, 2);
  f.ledger.admit(who);
  Service::create(f.store, "m", exact_options());
  Service s(f.store);
  s.insert("all", rows(0, 5));
  const Digest descriptor = ledger::testing::hash_of(who[0]);
  const Digest before = s.state_digest();
  EXPECT_NE(
      sentence_of([&] { s.erase("d", kOne, f.ledger, kToday, descriptor); }).find("not withdrawn"),
      std::string::npos);
  EXPECT_EQ(s.state_digest(), before);
  const auto event = ledger::testing::withdrawal(descriptor, ledger::testing::contributor_key());
  f.ledger.withdraw({&event, 1});
  const std::uint64_t position = f.ledger.state().size() - 1;
  EXPECT_EQ(s.erase("d", kOne, f.ledger, kToday, descriptor).at(0).entry.withdrawal, position);
}

TEST(Service, ExhaustionTurnsIntoARetrainNeverARefusal) {
  Files f;
  Service::create(f.store, "m", stream_options());
  Service s(f.store);
  s.insert("all", rows(0, 600));
  const std::uint64_t capacity = s.status().deletes_left.value();
  ASSERT_GT(capacity, 1u);
  ASSERT_LT(capacity, 20u);
  for (std::uint64_t i = 0; i < 2 * capacity + 1; ++i) {
    const std::vector<std::string> who = {"subject-" + std::to_string(i)};
    const auto receipt = s.erase("delete-" + std::to_string(i), who, f.ledger, kToday).at(0);
    EXPECT_EQ(receipt.entry.generation, i < capacity ? 0u : i < 2 * capacity + 1 ? 1u : 2u) << i;
    EXPECT_LE(s.status().eps_spent, 1.0);
  }
  EXPECT_EQ(s.status().generation, 1u);
  EXPECT_EQ(s.status().live, 600 - (2 * capacity + 1));
  // The retrained model is that of a service which never had the deleted records.
  s.retrain();
  Files g;
  Service::create(g.store, "m", stream_options());
  Service t(g.store);
  t.insert("rest", rows(2 * capacity + 1, 600));
  const auto theta = [](const Service& service) {
    const auto span = std::get<MemoryPair>(service.learner()).theta();
    return std::vector<double>(span.begin(), span.end());
  };
  EXPECT_EQ(theta(s), theta(t));
}

TEST(Service, ADeleteBeforeTheWarmUpEndsRetrainsToo) {
  Files f;
  Service::create(f.store, "m", stream_options());
  Service s(f.store);
  s.insert("few", rows(0, 5));
  EXPECT_EQ(s.status().deletes_left, 0u);
  EXPECT_EQ(s.erase("d", kOne, f.ledger, kToday).at(0).entry.generation, 1u);
  EXPECT_EQ(s.status().live, 4u);
}

TEST(Service, ErmServesItsLastPublicationAndTakesItBackWhenSomebodyIsDeleted) {
  Files f;
  Service::create(f.store, "m", erm_options());
  Service s(f.store);
  s.insert("all", rows(0, 200));
  EXPECT_NE(sentence_of([&] { s.predict(row(9).x); }).find("call publish"), std::string::npos);
  const Release first = s.publish();
  const double served = s.predict(row(9).x).value;
  s.insert("more", rows(200, 210));
  EXPECT_EQ(s.predict(row(9).x).value, served) << "what was published, not the state";
  s.erase("d", kOne, f.ledger, kToday);
  EXPECT_FALSE(s.status().published);
  EXPECT_THROW(s.predict(row(9).x), Error);
  s.publish();
  EXPECT_NE(s.predict(row(9).x).value, served);
  EXPECT_EQ(first.sigma, erm_options().sigma);
}

TEST(Service, ErmReleasesAreCountedThenRetrainAndATranscriptStops) {
  for (const Guarantee guarantee : {Guarantee::kPerRecord, Guarantee::kTranscript}) {
    Files f;
    ErmOptions o = erm_options(guarantee);
    o.sigma = guarantee == Guarantee::kTranscript ? 1 : 2.2e-6;  // three releases
    Service::create(f.store, "m", o);
    Service s(f.store);
    s.insert("all", rows(0, 100));
    std::uint64_t left = s.status().releases_left.value();
    ASSERT_GT(left, 0u);
    ASSERT_LT(left, 100u);
    for (; left > 0; --left) s.publish();
    EXPECT_EQ(s.status().releases_left, 0u);
    if (guarantee == Guarantee::kTranscript) {
      EXPECT_THROW(s.publish(), Error);
      s.retrain();
      EXPECT_EQ(s.status().releases_left, 0u) << "a retrain does not take releases back";
      EXPECT_THROW(s.publish(), Error);
    } else {
      s.publish();
      EXPECT_EQ(s.status().generation, 1u);
    }
    s.erase("d", kOne, f.ledger, kToday);  // deletes continue
  }
}

// The same number of deletions as in the ledger is not enough: they must be the same ones.
TEST(Service, ACopyThatDeletedOthersThanTheLedgerSaysIsRejected) {
  Files f;
  Service::create(f.store, "m", exact_options());
  Service(f.store).insert("all", rows(0, 5));
  const std::filesystem::path copy = f.folder / "copy.db";
  std::filesystem::copy_file(f.store, copy);
  Service(f.store).erase("d", kOne, f.ledger, kToday);
  ledger::Ledger other = new_ledger(f.folder / "other.db");
  Service(copy).erase("d", std::vector<std::string>{"subject-2"}, other, kToday);
  EXPECT_NE(sentence_of([&] { Service(copy, f.folder / "ledger.db"); }).find("not those"),
            std::string::npos);
  EXPECT_THROW(Service(copy).confirm(f.ledger), Error);
  Service s(f.store, f.folder / "ledger.db");
  s.erase("e", std::vector<std::string>{"subject-2", "subject-3"}, f.ledger, kToday);
  EXPECT_EQ(s.confirm(f.ledger), 0u);
}

TEST(Service, ARequestGivenTwiceIsDoneOnce) {
  Files f;
  Service::create(f.store, "m", erm_options());
  Digest state;
  {
    Service s(f.store);
    EXPECT_EQ(s.insert("all", rows(0, 20)), 20u);
    EXPECT_EQ(s.insert("all", rows(0, 20)), 0u);
    EXPECT_EQ(s.insert("all", rows(0, 25)), 5u) << "goes on where it was";
    EXPECT_THROW(s.insert("all", rows(1, 26)), Error) << "other rows";
    EXPECT_THROW(s.insert("all", rows(0, 10)), Error) << "fewer";
    s.erase("d", kOne, f.ledger, kToday);
    state = s.state_digest();
  }
  Service s(f.store);
  EXPECT_EQ(s.state_digest(), state);
  const auto again = s.erase("d", kOne, f.ledger, kToday + 5);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].entry.time, kToday);
  EXPECT_EQ(again[0].entry.commitment,
            ledger::deletion_commitment(again[0].salt, "subject-1", again[0].records));
  EXPECT_THROW(s.erase("d", std::vector<std::string>{"subject-2"}, f.ledger, kToday), Error);
  EXPECT_THROW(s.insert("d", rows(0, 1)), Error);
  // `discreet unlearn delete` asks in this way whether a name is taken.
  EXPECT_THROW(s.insert("d", {}), Error);
  EXPECT_THROW(s.insert("all", {}), Error);
  EXPECT_EQ(s.insert("new", {}), 0u);
  EXPECT_EQ(s.insert("new", {}), 0u);
  EXPECT_EQ(s.state_digest(), state);
  EXPECT_EQ(f.ledger.state().next_deletion("m"), 1u);
}

TEST(Service, BadInputIsNamedAndChangesNothing) {
  for (const EngineOptions& options :
       std::vector<EngineOptions>{exact_options(), erm_options(), stream_options()}) {
    Files f;
    Service::create(f.store, "m", options);
    Service s(f.store);
    s.insert("all", rows(0, 400));
    s.erase("gone", kOne, f.ledger, kToday);
    const Digest before = s.state_digest();
    const std::uint64_t entries = f.ledger.state().size();
    const auto refused = [&](const char* words, const std::function<void()>& call) {
      EXPECT_NE(sentence_of(call).find(words), std::string::npos) << sentence_of(call);
      EXPECT_EQ(s.state_digest(), before) << words;
      EXPECT_EQ(f.ledger.state().size(), entries) << words;
    };
    const auto erase = [&](std::vector<std::string> who) {
      return [&s, &f, who] { s.erase("new", who, f.ledger, kToday); };
    };
    refused("never inserted, or are already deleted", erase({"nobody"}));
    refused("never inserted, or are already deleted", erase({"subject-1"}));
    refused("never inserted, or are already deleted", erase({"subject-2", "nobody"}));
    refused("named twice", erase({"subject-2", "subject-2"}));
    refused("no subject", erase({}));
    const auto insert = [&](const std::function<void(Row&)>& spoil) {
      std::vector<Row> bad = rows(500, 503);
      spoil(bad[2]);
      return [&s, bad] { s.insert("bad", bad); };
    };
    refused("row 3", insert([](Row& r) { r.x.push_back(1); }));
    refused("2 features", insert([](Row& r) { r.x.pop_back(); }));
    refused("feature 1 is nan", insert([](Row& r) { r.x[1] = NAN; }));
    refused("feature 0 is inf", insert([](Row& r) { r.x[0] = INFINITY; }));
    refused("label", insert([](Row& r) { r.y = NAN; }));
    refused("subject", insert([](Row& r) { r.subject = ""; }));
    refused("UTF-8", insert([](Row& r) { r.subject = "\xff"; }));
    if (!std::holds_alternative<ExactOptions>(options)) {
      refused("logistic", insert([](Row& r) { r.y = 0.5; }));
    }
    s.publish();
    EXPECT_THROW(s.predict(std::vector<double>{1}), Error);
    EXPECT_THROW(s.predict(std::vector<double>{NAN, 0, 0}), Error);
  }
}

TEST(Service, MoreRecordsThanNMaxAreRefusedBeforeTheFirst) {
  Files f;
  ExactOptions o = exact_options();
  o.n_max = 10;
  Service::create(f.store, "m", o);
  Service s(f.store);
  s.insert("a", rows(0, 8));
  EXPECT_THROW(s.insert("b", rows(8, 11)), Error);
  EXPECT_EQ(s.status().live, 8u);
  EXPECT_EQ(s.insert("b", rows(8, 10)), 2u);
}

TEST(Service, AnOldCopyOfTheStoreIsNoticed) {
  Files f;
  Service::create(f.store, "m", exact_options());
  { Service(f.store).insert("all", rows(0, 5)); }
  std::filesystem::copy_file(f.store, f.folder / "old.db");
  { Service(f.store).erase("d", kOne, f.ledger, kToday); }
  std::filesystem::permissions(f.folder / "old.db", std::filesystem::perms(0600));
  Service old(f.folder / "old.db");
  EXPECT_NE(sentence_of([&] { old.confirm(f.ledger); }).find("old copy"), std::string::npos);
}

TEST(Service, IsForItsOwnerOneProcessAndNoOtherFile) {
  Files f;
  const auto mask = ::umask(0);
  Service::create(f.store, "m", exact_options());
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(f.store.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THROW(Service::create(f.store, "m", exact_options()), Error) << "never overwritten";
  EXPECT_NE(sentence_of([&] { Service s(f.folder / "absent.db"); }).find("unlearn init"),
            std::string::npos);
  { std::ofstream(f.folder / "other.db") << std::string(5000, 'x'); }
  std::filesystem::permissions(f.folder / "other.db", std::filesystem::perms(0600));
  EXPECT_THROW(Service s(f.folder / "other.db"), Error);
  std::filesystem::permissions(f.store, std::filesystem::perms(0644));
  EXPECT_NE(sentence_of([&] { Service s(f.store); }).find("chmod 600"), std::string::npos);
}

TEST(Service, ADeletedRecordIsNotInTheFile) {
  Files f;
  Service::create(f.store, "m", exact_options());
  std::vector<Row> all = rows(0, 300);
  all[1].subject = "a-name-that-is-in-the-file-once";
  const double mark = 0.12345678901234567;
  all[1].x[2] = mark;
  const auto holds = [&](ByteView needle) {
    std::ifstream in(f.store, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    return bytes.find(std::string(needle.begin(), needle.end())) != std::string::npos;
  };
  const ByteView name = bytes_of(all[1].subject);
  const ByteView number(reinterpret_cast<const std::uint8_t*>(&mark), sizeof mark);
  { Service(f.store).insert("all", all); }
  EXPECT_TRUE(holds(name) && holds(number));
  { Service(f.store).erase("d", std::vector<std::string>{all[1].subject}, f.ledger, kToday); }
  EXPECT_FALSE(holds(name));
  EXPECT_FALSE(holds(number));
}

// SQLite moves cells between pages, and would leave copies of them there.
TEST(Service, NoByteOfThousandsOfDeletedRecordsIsInTheFile) {
  Files f;
  Service::create(f.store, "m", exact_options());
  std::vector<Row> all = rows(0, 5000);
  std::mt19937_64 random(1);
  for (Row& r : all) r.subject = fmt::format("{:016x}", random());
  std::shuffle(all.begin(), all.end(), random);
  constexpr std::size_t kDeleted = 3000;
  Service s(f.store);
  s.insert("all", all);
  std::shuffle(all.begin(), all.end(), random);
  for (std::size_t first = 0; first < kDeleted; first += 100) {
    std::vector<std::string> subjects;
    for (std::size_t i = first; i < first + 100; ++i) subjects.push_back(all[i].subject);
    s.erase(fmt::format("delete-{}", first), subjects, f.ledger, kToday);
  }
  EXPECT_EQ(s.status().live, all.size() - kDeleted);
  std::ifstream in(f.store, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::unordered_set<std::string_view> here;  // every run of 8 bytes of the file
  for (std::size_t at = 0; at + 8 <= bytes.size(); ++at)
    here.insert(std::string_view(bytes).substr(at, 8));
  EXPECT_TRUE(here.contains(std::string_view(all.back().subject).substr(4, 8)));
  std::size_t names = 0, numbers = 0;
  for (std::size_t i = 0; i < kDeleted; ++i) {
    names += here.contains(std::string_view(all[i].subject).substr(4, 8));
    for (const double& x : all[i].x)
      numbers += here.contains({reinterpret_cast<const char*>(&x), sizeof x});
  }
  EXPECT_EQ(names, 0u);
  EXPECT_EQ(numbers, 0u);
}

TEST(Service, PredictScalesARecordAsTrainingDid) {
  // A ridge regression of one record (6, 8) with label 1, by its normal equation: the engine keeps
  // z = (0.6, 0.8) and its weights are z / (|z|^2 + lambda N).
  ExactOptions exact = exact_options(2);
  exact.N = 1;
  exact.n_max = 10;
  exact.lambda = 1.0 / 3;
  Files f;
  Service::create(f.store, "m", exact);
  Service s(f.store);
  s.insert("one", std::vector<Row>{{"a", {6, 8}, 1}});
  s.publish();
  // The exact engine clamps each number to 1 before it shrinks the vector to norm 1.
  EXPECT_NEAR(s.predict(std::vector<double>{6, 8}).value, 0.75, 1e-5);
  EXPECT_NEAR(s.predict(std::vector<double>{0.3, 0.4}).value, 0.75 * (0.7 / std::sqrt(2)), 1e-5);
  EXPECT_EQ(s.predict(std::vector<double>{6, 8}).value,
            s.predict(std::vector<double>{60, 80}).value);

  for (const EngineOptions& options :
       {EngineOptions(erm_options()), EngineOptions(stream_options())}) {
    Files g;
    Service::create(g.store, "m", options);
    Service t(g.store);
    t.insert("all", rows(0, 50));
    t.publish();
    const double at_bound = t.predict(std::vector<double>{0.48, 0.64, 0.6}).value;
    EXPECT_NE(at_bound, 0);
    EXPECT_NEAR(t.predict(std::vector<double>{4.8, 6.4, 6}).value, at_bound, 1e-12);
    EXPECT_NEAR(t.predict(std::vector<double>{0.24, 0.32, 0.3}).value, at_bound / 2, 1e-12);
    const std::vector<Row> far = {{"x", {3, 4, 0}, 1}, {"y", {0.1, 0, 0}, 1}};
    EXPECT_EQ(t.moved(far).records, 1u);
    EXPECT_EQ(t.moved(far).labels, 0u);
  }
  EXPECT_EQ(s.moved(std::vector<Row>{{"x", {0, 0}, 7}, {"y", {2, 0}, -1}}).labels, 1u);
}

TEST(Service, AnInterceptIsKeptInTheStoreAndUsedForPredictions) {
  // Every label is 1: without an intercept the origin would score 0.
  ExactOptions exact = exact_options(3);
  exact.N = 50;
  Files f;
  Service::create(f.store, "m", exact, {true, {}});
  {
    Service s(f.store);
    std::vector<Row> all = rows(0, 50, 2);
    for (Row& r : all) r.y = 1;
    EXPECT_EQ(s.features(), 2u);
    s.insert("all", all);
    s.publish();
    EXPECT_THROW(s.insert("wide", rows(0, 1, 3)), Error);
  }
  Service s(f.store);
  EXPECT_TRUE(s.form().intercept);
  EXPECT_GT(s.predict(std::vector<double>{0, 0}).value, 0.9);
  EXPECT_EQ(s.rows()[0].x.size(), 3u);
  s.erase("d", std::vector<std::string>{"subject-7"}, f.ledger, kToday);
  EXPECT_EQ(s.status().live, 49u);
  EXPECT_THROW(Service::create(f.folder / "other.db", "m", exact_options(1), {true, {}}), Error);
}

// In the journal, too: while the service is open, and after a process was killed.
TEST(Service, ADeletedRecordIsInNoFileOfTheFolder) {
  Files f;
  Service::create(f.store, "m", exact_options());
  std::vector<Row> all = rows(0, 300);
  all[1].subject = "a-name-that-is-in-the-file-once";
  const std::vector<std::string> who = {all[1].subject};
  const auto somewhere = [&] {
    for (const auto& file : std::filesystem::directory_iterator(f.store.parent_path())) {
      std::ifstream in(file.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(in)), {});
      if (bytes.find(who[0]) != std::string::npos) return file.path().filename().string();
    }
    return std::string();
  };
  Service s(f.store);
  s.insert("all", all);
  EXPECT_EQ(somewhere(), "model.db");
  s.erase("d", who, f.ledger, kToday);
  EXPECT_EQ(somewhere(), "");
}

TEST(Service, AJournalThatAKilledProcessLeftIsEmptiedWhenTheStoreIsOpened) {
  Files f;
  Service::create(f.store, "m", exact_options());
  const auto journal = f.folder / "model.db-journal";
  // As SQLite leaves it once its transaction is committed: no head, and what was replaced.
  { std::ofstream(journal, std::ios::binary) << std::string(512, '\0') << "a-deleted-name"; }
  Service s(f.store);
  EXPECT_TRUE(!std::filesystem::exists(journal) || std::filesystem::file_size(journal) == 0);
  s.insert("all", rows(0, 10));
  EXPECT_EQ(s.status().live, 10u);
  { const Service closed = std::move(s); }
  EXPECT_FALSE(std::filesystem::exists(journal));
}

TEST(Service, AnOldCopyOfTheStoreIsNotOpenedBesideItsLedger) {
  Files f;
  Service::create(f.store, "m", exact_options());
  {
    Service s(f.store, f.folder / "ledger.db");
    s.insert("all", rows(0, 5));
    s.publish();
  }
  const auto old = f.folder / "old.db";
  std::filesystem::copy_file(f.store, old);
  {
    Service s(f.store, f.folder / "ledger.db");
    s.erase("delete", kOne, f.ledger, kToday);
  }
  EXPECT_NO_THROW(Service(f.store, f.folder / "ledger.db"));
  try {
    Service(old, f.folder / "ledger.db");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find("old copy"), std::string::npos) << error.sentence();
  }
}

TEST(Service, ADeletedSubjectComesBackOnlyWhenThatIsSaid) {
  Files f;
  Service::create(f.store, "m", exact_options());
  Service s(f.store);
  s.insert("all", rows(0, 5));
  s.erase("delete", kOne, f.ledger, kToday);
  EXPECT_EQ(s.insert("all", rows(0, 5)), 0u) << "done before: nothing is inserted";
  try {
    s.insert("again", rows(0, 3));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_NE(error.sentence().find("subject-1"), std::string::npos) << error.sentence();
  }
  EXPECT_EQ(s.status().live, 4u);
  EXPECT_EQ(s.insert("others", rows(5, 7)), 2u);
  EXPECT_EQ(s.insert("again", rows(0, 3), Service::Reinsert::kAllow), 3u);
}

TEST(Service, RowsThatAreEmptyOrOfAnotherModelAreRefused) {
  for (const char* sql : {"UPDATE record SET row = zeroblob(0) WHERE id = 2",
                          "UPDATE record SET row = zeroblob(8) WHERE id = 2",
                          "UPDATE record SET row = zeroblob(80) WHERE id = 2",
                          "UPDATE record SET row = zeroblob(7) WHERE id = 2",
                          "UPDATE value SET value = zeroblob(0) WHERE name = 'state'",
                          "UPDATE value SET value = zeroblob(0) WHERE name = 'publication'",
                          "UPDATE value SET value = zeroblob(0) WHERE name = 'next_id'"}) {
    for (const EngineOptions& options :
         {EngineOptions(exact_options()), EngineOptions(erm_options()),
          EngineOptions(stream_options())}) {
      Files f;
      Service::create(f.store, "m", options);
      {
        Service s(f.store);
        s.insert("all", rows(0, 30));
        s.publish();
      }
      { Database(f.store, Database::Mode::kWrite, "ledger").run(sql); }
      try {
        Service s(f.store);
        s.predict(row(1).x);
        FAIL() << sql;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMalformed) << sql << error.sentence();
      }
    }
  }
}

}  // namespace
}  // namespace discreet::unlearning
