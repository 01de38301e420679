// A signer who lies: the file is signed as it should be, and yet an entry breaks a rule.
#include <gtest/gtest.h>

#include <functional>

#include "discreet/base/error_testing.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/opening_impl.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

struct File {
  std::vector<Entry> entries;
  std::vector<Store::Opening> openings;
};

template <class T>
T& entry(File& file, std::size_t i) {
  return std::get<T>(file.entries.at(i));
}

// 0 header, 1 policy, 2-4 admissions, 5 terms, 6-8 uses, 9 end, 10 withdrawal of contribution 1,
// 11 terms, 12-13 uses, 14 end, 15 release.
File built(std::uint64_t schema) {
  File file;
  State state;
  const auto add = [&](const Entry& e) {
    state.take(e);
    file.entries.push_back(e);
  };
  Header h = header("pld", schema);
  h.key = raw(ledger_key());
  h.policy = sha256(bytes_of("policy"));
  add(h);
  const ByteView policy = bytes_of("policy");
  add(Policy{Bytes(policy.begin(), policy.end())});
  const auto who = contributions(0, 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    file.openings.push_back({state.size(), who[i].descriptor, who[i].attestation});
    add(admission_of(h, i, file.openings.back(), raw(contributor_key())).leaf);
  }
  const auto epoch = [&](std::uint64_t n) {
    Terms t = terms();
    if (schema == 1) t.planned_steps = 0;
    t.run = "run";
    t.epoch = n;
    t.as_of = kToday;
    add(t);
    std::uint64_t uses = 0;
    std::size_t from = 0;
    while (const auto due = state.next_due(from)) {
      add(due->use);
      from = due->index + 1;
      ++uses;
    }
    add(EpochEnd{"run", n, uses});
  };
  epoch(0);
  add(withdrawal(hash_of(who[1]), contributor_key()));
  epoch(1);
  add(Release{"run", sha256({})});
  return file;
}

File honest(std::uint64_t schema = kSchemaVersion) {
  static const File kOne = built(1), kTwo = built(2);
  return schema == 1 ? kOne : kTwo;
}

Verification verify_signed(const File& file) {
  Folder folder;
  const auto path = folder / "l.db";
  {
    Store store(path, Store::Mode::kCreate);
    Store::Batch batch;
    Frontier frontier;
    for (const Entry& e : file.entries) {
      batch.add(encode(e));
      frontier.append(leaf_hash(encode(e)));
    }
    batch.openings = file.openings;
    store.append(0, batch);
    store.sign({frontier.size(),
                sign_note({header().origin, frontier.size(), frontier.root()}, ledger_key())});
  }
  return verify(path);
}

// The lie is found at the entry, by the rule.
void expect_found(const std::function<void(File&)>& lie, std::uint64_t at, int rule,
                  std::uint64_t schema = kSchemaVersion) {
  File file = honest(schema);
  lie(file);
  const Verification found = verify_signed(file);
  EXPECT_FALSE(found.ok) << at;
  EXPECT_EQ(found.entry, at) << found.problem;
  if (rule != 0) {
    EXPECT_NE(found.problem.find("(rule " + std::to_string(rule) + ")"), std::string::npos)
        << found.problem;
  }
}

TEST(LedgerRules, AnHonestFileVerifies) {
  for (const std::uint64_t schema : {1, 2}) {
    const Verification found = verify_signed(honest(schema));
    EXPECT_TRUE(found.ok) << found.problem;
    EXPECT_EQ(found.counts.uses, 5u);
  }
}

TEST(LedgerRules, ASpendBelowOrAboveWhatTheEventsComposeToIsFound) {
  // The second epoch charged as if it were the first: a total that was reset.
  expect_found([](File& f) { entry<Use>(f, 12).spend = entry<Use>(f, 6).spend; }, 12, 9, 1);
  expect_found([](File& f) { entry<Terms>(f, 5).steps = 200; }, 6, 9, 1);
  for (const std::uint64_t schema : {1, 2}) {
    expect_found([](File& f) { entry<Use>(f, 7).spend -= 2; }, 7, 9, schema);
    expect_found([](File& f) { entry<Use>(f, 7).spend += 2; }, 7, 9, schema);
    expect_found([](File& f) { entry<Use>(f, 12).spend -= 2; }, 12, 9, schema);
    // Added instead of composed.
    expect_found([](File& f) { entry<Use>(f, 12).spend = 2 * entry<Use>(f, 6).spend; }, 12, 9,
                 schema);
    // Terms that are worse than the spends say.
    expect_found([](File& f) { entry<Terms>(f, 5).deviation /= 2; }, 6, 9, schema);
    expect_found([](File& f) { entry<Terms>(f, 5).rate *= 2; }, 6, 9, schema);
  }
}

TEST(LedgerRules, AUseBeforeTheValidityOfItsDescriptorBeginsIsFound) {
  const auto valid_from = [](std::uint64_t not_before) {
    return [not_before](File& f) {
      Store::Opening& opening = f.openings[0];
      admission::Descriptor d = admission::decode_descriptor(opening.descriptor);
      d.not_before = static_cast<admission::Instant>(not_before);
      opening.descriptor = admission::encode(d);
      opening.signature = admission::attest(contributor_key(), opening.descriptor);
      f.entries[2] = admission_of(entry<Header>(f, 0), 0, opening, raw(contributor_key())).leaf;
    };
  };
  expect_found(valid_from(kToday + 1), 6, 8);
  expect_found(valid_from(kToday + 1), 6, 8, 1);
  File file = honest();
  valid_from(kToday)(file);
  EXPECT_TRUE(verify_signed(file).ok) << verify_signed(file).problem;
}

TEST(LedgerRules, AnEpochBeyondThePlanOfItsRunIsFound) {
  // A spend of the epochs that were taken instead of the plan.
  File without = honest(1);
  const std::uint64_t taken = entry<Use>(without, 6).spend;
  expect_found([&](File& f) { entry<Use>(f, 6).spend = taken; }, 6, 9);
  expect_found([](File& f) { entry<Terms>(f, 5).planned_steps = 2000; }, 6, 9);
  expect_found([](File& f) { entry<Terms>(f, 5).planned_steps = 100; }, 6, 9);
  expect_found([](File& f) { entry<Terms>(f, 5).planned_steps = 99; }, 5, 12);
  expect_found([](File& f) { entry<Terms>(f, 5).planned_steps = 0; }, 5, 12);
  expect_found([](File& f) { entry<Terms>(f, 11).planned_steps = 2000; }, 11, 12);
  expect_found([](File& f) { entry<Terms>(f, 11).steps = 901; }, 11, 12);
  expect_found([](File& f) { entry<Terms>(f, 11).steps = ~std::uint64_t{0}; }, 11, 12);
  expect_found([](File& f) { entry<Terms>(f, 11).deviation /= 2; }, 11, 12);
  expect_found([](File& f) { entry<Terms>(f, 11).sampler = 0; }, 11, 12);
  expect_found([](File& f) { entry<Terms>(f, 5).planned_steps = 1000; }, 5, 12, 1);
  File rest = honest();
  entry<Terms>(rest, 11).steps = 900;
  EXPECT_TRUE(verify_signed(rest).ok);
}

// An epoch of a class without contributions: rule 9 never sees its terms.
std::function<void(File&)> with_unused_terms(const std::function<void(Terms&)>& change) {
  return [change](File& f) {
    Terms t = entry<Terms>(f, 5);
    t.run = "other";
    t.admissibility_class = "nobody";
    change(t);
    f.entries.push_back(t);
    f.entries.push_back(EpochEnd{"other", 0, 0});
  };
}

TEST(LedgerRules, TermsThatNoRunCanHaveAreFoundEvenIfNobodyIsUsedUnderThem) {
  File most = honest();
  with_unused_terms([](Terms& t) {
    t.steps = t.planned_steps = kMostNumber;
    t.deviation = t.grid = kMostNumber;
    t.family = Family::kSkellam;
    t.rate = 1'000'000'000'000;
  })(most);
  const Verification verified = verify_signed(most);
  EXPECT_TRUE(verified.ok) << verified.problem;

  const auto refusal = [](std::uint64_t schema, const std::function<void(Terms&)>& change) {
    File file = honest(schema);
    with_unused_terms(change)(file);
    State state;
    for (const std::size_t i : {0, 1}) state.take(file.entries[i]);
    try {
      state.take(decode_entry(encode(file.entries[16])));
    } catch (const Error& error) {
      return error.sentence();
    }
    return std::string("nothing");
  };
  const auto whole_epochs = [](Terms& t) {
    t.sampler = 4;
    t.rate = 0;
    t.batch = t.steps;
  };
  for (const std::uint64_t schema : {1, 2}) {
    for (const std::function<void(Terms&)>& change : std::vector<std::function<void(Terms&)>>{
             [](Terms& t) { t.steps = 0; }, [](Terms& t) { t.deviation = 0; },
             [](Terms& t) { t.deviation = kMostNumber + 1; },
             [](Terms& t) { t.deviation = ~std::uint64_t{0}; },
             [](Terms& t) { t.rate = 1'000'000'000'001; }, [](Terms& t) { t.rate = 0; },
             [](Terms& t) { t.batch = 1; }, [](Terms& t) { t.population = 1; },
             [](Terms& t) { t.grid = 1; }, [](Terms& t) { t.family = Family::kDiscreteGaussian; },
             [](Terms& t) { t.family = Family::kSkellam, t.grid = kMostNumber + 1; },
             [](Terms& t) { t.sampler = 6; }, [](Terms& t) { t.sampler = 255; },
             [](Terms& t) { t.sampler = 3, t.rate = 0, t.batch = 2, t.population = 1; },
             [&](Terms& t) { whole_epochs(t), t.batch = 0; },
             [&](Terms& t) { whole_epochs(t), t.batch -= 1; }})
      EXPECT_SAYS(refusal(schema, change), "(rule 7)");
    // Not a known family.
    EXPECT_SAYS(refusal(schema, [](Terms& t) { t.family = Family{5}; }), "not a known code");
  }
  EXPECT_SAYS(refusal(2, [](Terms& t) { t.planned_steps = kMostNumber + 1; }), "(rule 7)");
  EXPECT_SAYS(refusal(2, [&](Terms& t) { whole_epochs(t), t.planned_steps = 1050; }), "(rule 7)");
  EXPECT_SAYS(refusal(1, [](Terms& t) { t.steps = kMostNumber + 1; }), "(rule 7)");
  expect_found(with_unused_terms([](Terms& t) { t.steps = 0; }), 16, 7);
  // Rejected before they reach the accountant.
  expect_found([](File& f) { entry<Terms>(f, 5).planned_steps = std::uint64_t{1} << 60; }, 5, 7);
  expect_found([](File& f) { entry<Terms>(f, 5).deviation = ~std::uint64_t{0}; }, 5, 7);
}

TEST(LedgerRules, AnAdmissionWithoutAnAttestationIsFound) {
  expect_found(
      [](File& f) {
        entry<Admission>(f, 3).signature.reset();
        f.openings.erase(f.openings.begin() + 1);
      },
      3, 4);
  expect_found([](File& f) { entry<Admission>(f, 3).signature.reset(); }, 3, 4);
  expect_found([](File& f) { f.openings.erase(f.openings.begin() + 1); }, 3, 4);
}

TEST(LedgerRules, RefusalsBeyondAllCountingAreFound) {
  expect_found(
      [](File& f) {
        f.entries.push_back(Refusals{{{"EXPIRED", ~std::uint64_t{0}}}});
      },
      16, 4);
  expect_found(
      [](File& f) {
        f.entries.push_back(Refusals{{{"EXPIRED", kMostNumber}}});
        f.entries.push_back(Refusals{{{"EXPIRED", 1}}});
      },
      17, 4);
}

TEST(LedgerRules, AHeaderOfALaterSchemaIsRefused) {
  expect_found([](File& f) { entry<Header>(f, 0).schema = 3; }, 0, 1);
  expect_found([](File& f) { entry<Header>(f, 0).schema = 0; }, 0, 1);
  // The schema decides how spends are read.
  expect_found([](File& f) { entry<Header>(f, 0).schema = 1; }, 5, 12);
}

TEST(LedgerRules, AUseAfterItsWithdrawalIsFound) {
  expect_found([](File& f) { entry<Use>(f, 12).contribution = 1; }, 12, 8);
  expect_found(
      [](File& f) {
        Use again = entry<Use>(f, 12);
        again.contribution = 1;
        f.entries.insert(f.entries.begin() + 13, again);
      },
      13, 5);
}

TEST(LedgerRules, AnEpochThatLeavesSomeoneOutIsFound) {
  expect_found([](File& f) { f.entries.erase(f.entries.begin() + 7); }, 7, 8);
  expect_found([](File& f) { f.entries.erase(f.entries.begin() + 8); }, 8, 8);
  expect_found([](File& f) { std::swap(f.entries[6], f.entries[7]); }, 6, 8);
  expect_found([](File& f) { entry<EpochEnd>(f, 9).uses = 2; }, 9, 8);
  expect_found([](File& f) { entry<EpochEnd>(f, 9).epoch = 5; }, 9, 6);
  expect_found([](File& f) { entry<Terms>(f, 11).epoch = 2; }, 11, 6);
  expect_found([](File& f) { entry<Terms>(f, 11).as_of = kToday - 1; }, 11, 6);
  expect_found([](File& f) { entry<Terms>(f, 5).adjacency = accounting::Adjacency::kAddRemove; }, 5,
               7);
}

TEST(LedgerRules, AnAdmissionThatSaysMoreThanItsDescriptorIsFound) {
  expect_found([](File& f) { entry<Admission>(f, 3).clip *= 2; }, 3, 4);
  expect_found([](File& f) { entry<Admission>(f, 3).uses = 5; }, 3, 4);
  expect_found([](File& f) { entry<Admission>(f, 3).admissibility_class = "other"; }, 3, 4);
  expect_found([](File& f) { entry<Admission>(f, 3).not_after += 1; }, 3, 4);
  expect_found([](File& f) { entry<Admission>(f, 3).adapter = "more"; }, 3, 4);
  expect_found([](File& f) { entry<Admission>(f, 3).multiplier = 1; }, 3, 4);  // below the floor
  expect_found([](File& f) { entry<Admission>(f, 3).number = 7; }, 3, 3);
  expect_found(
      [](File& f) { entry<Admission>(f, 3).descriptor = entry<Admission>(f, 2).descriptor; }, 3, 3);
  // An attestation by another key than the one recorded.
  expect_found([](File& f) { entry<Admission>(f, 3).contributor = raw(key(9)); }, 3, 0);
}

TEST(LedgerRules, AWithdrawalByNobodyEntitledIsFound) {
  expect_found([](File& f) { entry<Withdrawal>(f, 10).reason = "another"; }, 10, 5);
  expect_found(
      [](File& f) { f.entries[10] = withdrawal(entry<Withdrawal>(f, 10).descriptor, key(9)); }, 10,
      5);
  expect_found(
      [](File& f) {
        f.entries.insert(f.entries.begin() + 11,
                         withdrawal(entry<Withdrawal>(f, 10).descriptor, steward_key()));
      },
      11, 5);
}

TEST(LedgerRules, AReleaseOfNoRunAndAHeaderInTheMiddleAreFound) {
  expect_found([](File& f) { entry<Release>(f, 15).run = "unknown"; }, 15, 6);
  expect_found([](File& f) { f.entries.push_back(f.entries[0]); }, 16, 1);
  expect_found([](File& f) { entry<Policy>(f, 1).text.push_back(0); }, 1, 1);
  expect_found([](File& f) { f.entries.push_back(Signed{}); }, 16, 2);
  expect_found([](File& f) { f.entries.push_back(Refusals{}); }, 16, 4);
  expect_found([](File& f) { f.entries.push_back(Refusals{{{"USES_EXHAUSTED", 1}}}); }, 16, 4);
}

// A signer who summarises honestly, or misstates what was summarised.
Verification verify_summarised(const std::function<void(Summary&)>& lie,
                               std::uint64_t horizon = kToday + 50) {
  Folder folder;
  const auto path = folder / "l.db";
  Summary summary;
  Frontier frontier;
  std::string last;
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 3, "old", kToday + 50));
    ledger.admit(contributions(3, 5, "new", kToday + 500));
    ledger.reserve_epoch("run", 0, kToday, {terms("old")});
    ledger.reserve_epoch("run", 1, kToday + 1, {terms("new"), terms("old")});
    ledger.reserve_epoch("run", 2, kToday + 2, {terms("new")});
    summary = ledger.state().summary(horizon);
    last = ledger.note();
  }
  std::vector<std::pair<std::uint64_t, Digest>> removed;
  Store store(path, Store::Mode::kWrite);
  Sha256 digest;
  {
    Store::Leaves leaves(store, 0);
    for (Store::Leaf leaf; leaves.next(leaf);) {
      const Entry e = decode_entry(leaf.content);
      const Digest hash = leaf_hash(leaf.content);
      frontier.append(hash);
      const auto* admitted = std::get_if<Admission>(&e);
      const auto* use = std::get_if<Use>(&e);
      if (!(admitted && admitted->number < 3) && !(use && use->contribution < 3)) continue;
      removed.emplace_back(leaf.position, hash);
      std::uint8_t position[8];
      for (int i = 0; i < 8; ++i)
        position[i] = static_cast<std::uint8_t>(leaf.position >> (56 - 8 * i));
      digest.update(position).update(hash);
    }
  }
  summary.leaves = removed.size();
  summary.digest = digest.finish();
  lie(summary);
  Store::Batch batch;
  for (const Entry& e : std::vector<Entry>{Signed{sha256(bytes_of(last))}, summary}) {
    batch.add(encode(e));
    frontier.append(leaf_hash(encode(e)));
  }
  store.append(frontier.size() - 2, batch);
  store.sign({frontier.size(),
              sign_note({header().origin, frontier.size(), frontier.root()}, ledger_key())},
             removed);
  return verify(path);
}

TEST(LedgerRules, ASummaryThatSaysSomethingElseThanWhatIsGoneIsFound) {
  const Verification honest = verify_summarised([](Summary&) {});
  ASSERT_TRUE(honest.ok) << honest.problem;
  EXPECT_EQ(honest.summarised.at(0).uses, 6u);
  const auto found = [](const std::function<void(Summary&)>& lie) {
    const Verification v = verify_summarised(lie);
    return !v.ok && v.problem.find("(rule 10)") != std::string::npos;
  };
  // Uses moved to another class, contributions too, and both sums as they were.
  EXPECT_TRUE(found([](Summary& s) {
    s.classes[0].uses = 2;
    s.classes.insert(s.classes.begin(), {"new", 0, 4, 9});
  }));
  EXPECT_TRUE(found([](Summary& s) {
    s.classes[0].contributions = 2;
    s.classes.insert(s.classes.begin(), {"new", 1, 0, 0});
  }));
  EXPECT_TRUE(found([](Summary& s) { s.classes[0].most_spent = 0; }));
  // Sums that are right modulo 2^64 only.
  EXPECT_TRUE(found([](Summary& s) {
    constexpr std::uint64_t kBelowZero = ~std::uint64_t{0} - 6;
    s.classes.push_back({"zz", kBelowZero, kBelowZero, 5});
    s.classes.push_back({"zzz", 7, 7, 5});
  }));
  EXPECT_TRUE(found([](Summary& s) { s.horizon = kToday + 1; }));    // nobody had ended then
  EXPECT_TRUE(found([](Summary& s) { s.horizon = kToday + 600; }));  // then all had
}

Deletion deletion(std::uint64_t number) {
  Deletion d;
  d.model = "model";
  d.number = number;
  d.time = kToday;
  d.engine = "erm";
  d.promise = DeletionPromise::kPerRecord;
  d.epsilon = 1'000'000;
  d.delta = 10'000'000'000'000;
  d.withdrawal = 10;
  return d;
}

TEST(LedgerRules, ADeletionThatIsLeftOutRepeatedOrLinkedToNothingIsFound) {
  const auto with = [](const std::function<void(Deletion&)>& change) {
    return [change](File& f) {
      f.entries.push_back(deletion(0));
      Deletion second = deletion(1);
      change(second);
      f.entries.push_back(second);
    };
  };
  expect_found(with([](Deletion& d) { d.number = 0; }), 17, 11);
  expect_found(with([](Deletion& d) { d.number = 2; }), 17, 11);
  expect_found(with([](Deletion& d) { d.model = ""; }), 17, 11);
  expect_found(with([](Deletion& d) { d.model = "another"; }), 17, 11);
  expect_found(with([](Deletion& d) { d.engine = "magic"; }), 17, 11);
  expect_found(with([](Deletion& d) { d.withdrawal = 9; }), 17, 11);
  expect_found(with([](Deletion& d) { d.withdrawal = 99; }), 17, 11);
  expect_found(with([](Deletion& d) { d.promise = DeletionPromise::kExact; }), 17, 11);
  expect_found(with([](Deletion& d) { d.epsilon = d.delta = 0; }), 17, 11);
  expect_found(
      [](File& f) {
        f.entries.push_back(deletion(0));
        std::get<Deletion>(f.entries.back()).generation = 1;
        f.entries.push_back(deletion(1));
      },
      17, 11);
}

TEST(Entries, ComeBackFromTheirBytesAndNoOtherBytesAreOne) {
  File file = honest();
  for (const Entry& e : honest(1).entries) file.entries.push_back(e);
  file.entries.push_back(Refusals{{{"EXPIRED", 3}}});
  file.entries.push_back(Summary{1, 2, {}, {{"public", 1, 2, 3}}});
  file.entries.push_back(Signed{sha256({})});
  file.entries.push_back(deletion(0));
  file.entries.push_back(Deletion{});
  for (const Entry& e : file.entries) {
    const Bytes bytes = encode(e);
    EXPECT_EQ(encode(decode_entry(bytes)), bytes);
    EXPECT_EQ(decode_entry(bytes).index(), e.index());
    Bytes longer = bytes, shorter = bytes;
    longer.push_back(0);
    shorter.pop_back();
    EXPECT_THROW(decode_entry(longer), Error);
    EXPECT_THROW(decode_entry(shorter), Error);
  }
  for (const std::uint64_t n : {0ull, 23ull, 24ull, 255ull, 256ull, 65535ull, 65536ull,
                                4294967295ull, 4294967296ull, ~0ull}) {
    const Use use{n, n, n};
    std::uint8_t bytes[32];
    const Bytes fast(bytes, bytes + encode_use(use, bytes));
    EXPECT_EQ(fast, encode(use));
    EXPECT_EQ(encode(decode_entry(fast)), fast);
  }
  // A long head where a short one would do, in a use: not canonical.
  EXPECT_THROW(decode_entry(from_hex("840418050000")), Error);
  EXPECT_THROW(decode_entry(from_hex("84041900050000")), Error);
  EXPECT_THROW(decode_entry({}), Error);
}

}  // namespace
}  // namespace discreet::ledger
