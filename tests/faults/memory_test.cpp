// The library where memory runs out: the n-th allocation fails, for every n until the work is done.
// What comes out is std::bad_alloc or kIoError; nothing is freed twice, and files are as they were.
// (The command ends at the first failure: tests/crash/test_faults.py.)
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "discreet/accounting/accountant.h"
#include "discreet/admission/policy_testing.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "tests/fuzz/honest_ledger.h"

namespace {
std::atomic<long> left{-1};  // allocations until one fails; negative: none does
}

// g++ sees malloc behind one and not the other.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) {
  if (left.load() >= 0 && left.fetch_sub(1) == 0) throw std::bad_alloc();
  if (void* taken = std::malloc(size == 0 ? 1 : size)) return taken;
  throw std::bad_alloc();
}
void operator delete(void* taken) noexcept { std::free(taken); }
void operator delete(void* taken, std::size_t) noexcept { std::free(taken); }

namespace discreet {
namespace {

// How many allocations failed before the work was done. after: what must hold after each failure.
long run_out(
    const std::function<void()>& work, const std::function<void()>& after = [] {}) {
  for (long n = 0; n < 100'000; ++n) {
    bool done = false;
    left = n;
    try {
      work();
      done = left.load() >= 0;  // not even this one was reached
    } catch (const std::bad_alloc&) {
    } catch (const Error& error) {
      left = -1;
      EXPECT_EQ(error.code(), ErrorCode::kIoError) << error.what();
    }
    left = -1;
    if (done) return n;
    after();
  }
  ADD_FAILURE() << "the work never ends";
  return 0;
}

cbor::Value example() {
  std::vector<cbor::Value> items;
  for (int i = 0; i < 4; ++i) items.emplace_back(Bytes(20));
  std::vector<cbor::Entry> entries;
  for (int i = 0; i < 3; ++i) {
    cbor::Entry entry;
    entry.key = i;
    entry.value = cbor::array(items);
    entries.push_back(entry);
  }
  return cbor::map(std::move(entries));
}

// libstdc++ 12 frees twice what std::variant did not finish to copy.
TEST(NoMemory, LeavesCborValuesWhole) {
  const cbor::Value value = example();
  EXPECT_GT(run_out([&] { cbor::Value copy(value); }), 10);
  const Bytes bytes = cbor::encode(value);
  EXPECT_GT(run_out([&] { cbor::encode(cbor::decode(bytes)); }), 10);
}

TEST(NoMemory, LeavesPoliciesAndDescriptorsWhole) {
  const std::string text = admission::testing::policy_text();
  const admission::Policy policy = admission::testing::policy();
  EXPECT_GT(run_out([&] { admission::hash_of(policy); }), 100);
  const Bytes bytes = admission::encode(admission::testing::clinical());
  EXPECT_GT(run_out([&] { admission::encode(admission::decode_descriptor(bytes)); }), 10);
}

TEST(NoMemory, LeavesAccountantsAsTheyWere) {
  using namespace accounting;
  for (const char* name : {"pld", "rdp", "moments"}) {
    const auto accountant = make_accountant(name);
    const Event event(Gaussian{1.0}, Poisson{0.01}, Adjacency::kAddRemove);
    const Bytes before = accountant->save();
    bool composed = false;
    run_out([&] { accountant->compose(event, 10), composed = true; },
            [&] { EXPECT_TRUE(composed || accountant->save() == before) << name; });
    const double expected = accountant->epsilon(1e-5).epsilon.upper;
    run_out([&] { accountant->epsilon(1e-5); });
    EXPECT_EQ(accountant->epsilon(1e-5).epsilon.upper, expected) << name;
  }
}

TEST(NoMemory, LeavesALedgerVerifiable) {
  using namespace ledger;
  using namespace ledger::testing;
  const Folder folder;
  const auto path = folder / "l.db";
  Ledger ledger = Ledger::create(path, header("rdp"), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 2));
  VerifyOptions options;
  std::uint64_t failures = 0;
  const long allocations = run_out([&] { ledger.reserve_epoch("run", 0, kToday, {terms()}); },
                                   [&] {
                                     if (++failures % 16 != 0) return;
                                     options.checkpoint = ledger.note();
                                     const Verification found = verify(path, options);
                                     EXPECT_TRUE(found.ok || found.kind == "unsigned")
                                         << found.problem;
                                   });
  EXPECT_GT(allocations, 50);
  EXPECT_EQ(ledger.state().counts().uses, 2u);
  EXPECT_TRUE(verify(path).ok);
  // A lack of memory never gives a verdict.
  EXPECT_GT(run_out([&] {
              const bool ok = verify(path).ok;
              if (!ok && left.load() >= 0) ADD_FAILURE() << "a sound ledger was called broken";
            }),
            50);
}

}  // namespace
}  // namespace discreet
