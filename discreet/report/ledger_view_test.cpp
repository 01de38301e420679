#include "discreet/report/ledger_view.h"

#include <gtest/gtest.h>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/store.h"
#include "discreet/report/html.h"
#include "discreet/report/run_testing.h"

namespace discreet::report {
namespace {

using namespace ledger;
using namespace ledger::testing;

// Admissions, refusals, two epochs, a withdrawal, a release, a summary.
Ledger example(const std::filesystem::path& path, std::uint64_t schema = kSchemaVersion) {
  Ledger ledger = Ledger::create(path, header("pld", schema), bytes_of("policy"), ledger_key());
  auto who = contributions(0, 6);
  who.push_back(contribution(6, "sensitive", kToday + 10));
  ledger.admit(who, {{{"BELOW_FLOOR", 2}, {"REVOKED_KEY", 1}}});
  ledger.reserve_epoch("run <b>1", 0, kToday, {terms(), terms("sensitive")});
  ledger.withdraw(std::vector{withdrawal(hash_of(contribution(2)), steward_key())});
  ledger.reserve_epoch("run <b>1", 1, kToday, {terms(), terms("sensitive")});
  ledger.release("run <b>1", sha256(bytes_of("manifest")));
  ledger.summarise(kToday + 1010);
  return ledger;
}

std::string read(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

std::string page_of(const Folder& folder, const MadeUpRun& made_up, bool is_public) {
  std::filesystem::remove_all(folder / "run");
  made_up.write(folder / "run");
  write_report(folder / "run", is_public, folder / "page.html", folder / "ledger.db");
  return read(folder / "page.html");
}

bool has(const std::string& page, std::string_view text) {
  return page.find(text) != std::string::npos;
}

TEST(LedgerView, TellsClassesRefusalsEpochsWithdrawalsAndReleases) {
  const Folder folder;
  const Ledger ledger = example(folder / "ledger.db");
  const LedgerView view = view_ledger(folder / "ledger.db");
  EXPECT_EQ(view.size, ledger.state().size());
  EXPECT_EQ(view.note, ledger.note());
  ASSERT_EQ(view.classes.size(), 1u);
  const LedgerView::Class& open = view.classes.at("public");
  EXPECT_EQ(open.contributions, 6u);
  EXPECT_EQ(open.withdrawn, 1u);
  EXPECT_EQ(open.uses, 6u + 5u);
  EXPECT_EQ(open.most_spent, ledger.state().contributions()[0].recorded);
  EXPECT_EQ(open.withdrawn_spent, 0u);
  EXPECT_EQ(view.refusals.at("BELOW_FLOOR"), 2u);
  ASSERT_EQ(view.epochs.size(), 2u);  // a row for each class, with both epochs
  EXPECT_EQ(view.epochs[0].terms.admissibility_class, "public");
  EXPECT_EQ(view.epochs[0].most_uses, 6u);
  EXPECT_EQ(view.epochs[0].terms.epoch, 0u);
  EXPECT_EQ(view.epochs[0].last_epoch, 1u);
  EXPECT_EQ(view.epochs[0].steps, 2 * terms().steps);
  EXPECT_EQ(view.epochs[0].most_spent, open.most_spent);
  EXPECT_EQ(view.all_epochs, 2u);
  EXPECT_EQ(view.withdrawals.size(), 1u);
  EXPECT_EQ(view.releases.size(), 1u);
  EXPECT_EQ(view.summarised_classes.at(0).contributions, 1u);
}

TEST(LedgerView, OfALedgerWithoutPlansTellsWhatWithdrawnOnesAllowed) {
  const Folder folder;
  example(folder / "ledger.db", 1);
  const LedgerView view = view_ledger(folder / "ledger.db");
  EXPECT_GT(view.classes.at("public").withdrawn_spent, view.classes.at("public").most_spent);
  EXPECT_EQ(view.epochs[0].most_spent, view.classes.at("public").most_spent);
  EXPECT_TRUE(has(page_of(folder, {}, false), "if each run ended as planned"));
  std::filesystem::remove(folder / "ledger.db");
  example(folder / "ledger.db");
  EXPECT_TRUE(has(page_of(folder, {}, false), "all steps that it planned, however it ended"));
}

TEST(LedgerView, CarriesEveryLeafAndNoteAndNothingElse) {
  const Folder folder;
  example(folder / "ledger.db");
  const LedgerView view = view_ledger(folder / "ledger.db");
  ASSERT_TRUE(view.is_whole);
  const cbor::Value embedded = cbor::decode(view.embedded);
  EXPECT_EQ(embedded.as_array().size(), 4u);
  const auto& leaves = embedded.as_array()[2].as_array();
  ASSERT_EQ(leaves.size(), view.size);
  EXPECT_EQ(embedded.as_array()[3].as_array().size(), view.checkpoints);
  Frontier tree;
  for (const cbor::Value& leaf : leaves) {
    if (leaf.type() == cbor::Type::kBytes) {
      tree.append(leaf_hash(leaf.as_bytes()));
    } else {
      Digest hash;
      std::ranges::copy(leaf.as_array()[0].as_bytes(), hash.begin());
      tree.append(hash);
    }
  }
  EXPECT_EQ(tree.root(), read_unverified(view.note).root);
  // A descriptor's nonce and an attestation stay in the file.
  const std::string bytes(view.embedded.begin(), view.embedded.end());
  for (const auto& c : contributions(0, 6)) {
    EXPECT_FALSE(has(bytes, {reinterpret_cast<const char*>(c.descriptor.data()), 40}));
    EXPECT_FALSE(has(bytes, {reinterpret_cast<const char*>(c.attestation.data()), 40}));
  }
}

TEST(LedgerView, LeavesTheEntriesOfALargeLedgerOut) {
  const Folder folder;
  {
    Ledger ledger = Ledger::create(folder / "ledger.db", header("rdp"),
                                   bytes_of(std::string(900'000, 'p')), ledger_key());
    ledger.admit(contributions(0, 2));
    Terms wide = terms();
    wide.profile = cbor::encode(cbor::array({std::string(1'000'000, 'x')}));
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
      ledger.reserve_epoch("run", epoch, kToday, {wide});
  }
  const LedgerView view = view_ledger(folder / "ledger.db");
  EXPECT_FALSE(view.is_whole);
  EXPECT_GT(view.bytes, kMostEmbeddedBytes);
  EXPECT_LT(view.embedded.size(), 2000u);
  ASSERT_EQ(view.epochs.size(), 1u);
  EXPECT_EQ(view.epochs[0].last_epoch, 3u);
  const cbor::Value embedded = cbor::decode(view.embedded);
  EXPECT_EQ(embedded.as_array()[2].as_array().size(), 1u);
  EXPECT_EQ(embedded.as_array()[3].as_array()[0].as_text(), view.note);
}

TEST(LedgerView, RefusesALedgerThatDoesNotVerifyOrWasRolledBack) {
  const Folder folder;
  std::string later;
  {
    Ledger ledger =
        Ledger::create(folder / "ledger.db", header(), bytes_of("policy"), ledger_key());
    std::filesystem::copy_file(folder / "ledger.db", folder / "old.db");
    ledger.admit(contributions(0, 2));
    later = ledger.note();
  }
  EXPECT_NO_THROW(view_ledger(folder / "ledger.db", later));
  MadeUpRun{}.write(folder / "run");
  write_atomically(folder / "run" / "ledger.note", bytes_of(later));
  EXPECT_NO_THROW(write_report(folder / "run", true, folder / "page.html", folder / "ledger.db"));
  const std::string before = read(folder / "page.html");
  try {
    write_report(folder / "run", true, folder / "page.html", folder / "old.db");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_TRUE(has(error.sentence(), "rollback")) << error.sentence();
  }
  EXPECT_EQ(read(folder / "page.html"), before);
}

TEST(LedgerPage, HasOneScriptWhichItsPolicyNamesAndEscapesWhatEntriesSay) {
  const Folder folder;
  example(folder / "ledger.db");
  for (const bool is_public : {false, true}) {
    const std::string page = page_of(folder, {}, is_public);
    EXPECT_TRUE(has(page, "script-src 'sha256-"));
    EXPECT_TRUE(has(page, "default-src 'none'"));
    EXPECT_FALSE(has(page, "unsafe"));
    EXPECT_FALSE(has(page, "connect-src"));
    std::size_t scripts = 0;
    for (std::size_t at = 0; (at = page.find("<script", at)) != std::string::npos; ++at) ++scripts;
    EXPECT_EQ(scripts, 2u);  // the data and the code
    EXPECT_FALSE(has(page, "run <b>"));
    EXPECT_TRUE(has(page, "run &lt;b&gt;1"));
    EXPECT_TRUE(has(page, "asked for less protection than the policy demands"));
  }
}

TEST(LedgerPage, IsTheSameForRunsThatDifferInTheData) {
  const Folder folder;
  example(folder / "ledger.db");
  EXPECT_EQ(page_of(folder, {}, true), page_of(folder, {.data = 0.37}, true));
}

TEST(LedgerPage, OfARunThatWasStoppedIsPublicWithoutTheLedger) {
  const Folder folder;
  example(folder / "ledger.db");
  const MadeUpRun stopped{.steps = 15, .ended = "interrupted"};
  const std::string page = page_of(folder, stopped, true);
  EXPECT_TRUE(has(page, "The number of epochs reserved by then may depend on the records"));
  EXPECT_FALSE(has(page, "&lt;b&gt;1"));
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_TRUE(has(page_of(folder, stopped, false), "&lt;b&gt;1"));
}

TEST(LedgerPage, ShowsNoLedgerThatSomebodyPutIntoTheFolderOfARunWithoutCorpus) {
  const Folder folder;
  MadeUpRun{}.write(folder / "run");
  write_report(folder / "run", false, folder / "page.html");
  EXPECT_FALSE(has(read(folder / "page.html"), "ledger-data"));
  example(folder / "run" / "ledger.db");
  write_report(folder / "run", false, folder / "page.html");
  EXPECT_FALSE(has(read(folder / "page.html"), "ledger-data"));
  write_report(folder / "run", false, folder / "page.html", folder / "run" / "ledger.db");
  EXPECT_TRUE(has(read(folder / "page.html"), "ledger-data"));
}

}  // namespace
}  // namespace discreet::report
