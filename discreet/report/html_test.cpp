#include "discreet/report/html.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/base/folder_testing.h"
#include "discreet/report/run_testing.h"
#include "discreet/report/words_impl.h"

namespace discreet::report {
namespace {

std::string page_of(const MadeUpRun& made_up, bool is_public, const char* name = "run") {
  const Folder folder;
  made_up.write(folder / name);
  write_report(folder / name, is_public, folder / "out.html");
  const Bytes bytes = read_file(folder / "out.html");
  return {bytes.begin(), bytes.end()};
}

bool has(const std::string& page, std::string_view text) {
  return page.find(text) != std::string::npos;
}

TEST(Report, PublicPagesOfRunsThatDifferInTheDataAreTheSameBytes) {
  for (const char* ended : {"completed", "budget_reached", "interrupted", "mechanism"}) {
    MadeUpRun one{.ended = ended}, other{.data = 0.37, .ended = ended};
    EXPECT_EQ(page_of(one, true, "one"), page_of(other, true, "other"));
    EXPECT_NE(page_of(one, false), page_of(other, false));
  }
}

TEST(Report, PublicPagesDoNotShowWhenARunWasInterrupted) {
  EXPECT_EQ(page_of({.steps = 15, .ended = "interrupted"}, true),
            page_of({.steps = 16, .ended = "interrupted"}, true));
}

TEST(Report, HasNoPublicPageOfARunThatFailedOrGoesOn) {
  for (const char* ended : {"", "failed"})
    EXPECT_THROW(page_of({.steps = 15, .ended = ended}, true), Error);
  EXPECT_TRUE(has(page_of({.steps = 15, .ended = ""}, false), ">Unfinished<"));
  EXPECT_TRUE(has(page_of({.steps = 15, .ended = "failed"}, false), ">Failed<"));
}

TEST(Report, StatesTheClaimAndWhatItIsNot) {
  const std::string page = page_of({}, false);
  EXPECT_TRUE(has(page, "≤ 2.7000"));
  EXPECT_TRUE(has(page, "certified between 1.8073 and 2.7000"));
  EXPECT_TRUE(has(page, "10<sup>−5</sup>"));
  EXPECT_TRUE(has(page, "<code>add_remove</code>"));
  EXPECT_TRUE(has(page, "93.12%"));
  EXPECT_TRUE(has(page, "they have no guarantee"));
  EXPECT_TRUE(has(page, "chosen on this data are not covered"));
  EXPECT_TRUE(has(page, "<strong>Confidential.</strong>"));
  EXPECT_FALSE(has(page, "Not private"));
  const std::string open = page_of({}, true);
  EXPECT_TRUE(has(open, "≤ 2.7000"));
  EXPECT_TRUE(has(open, "<strong>Public report.</strong>"));
  for (const char* confidential : {"93.12%", "Gradient norms", "Clipped records", "Loss",
                                   "<strong>Confidential.</strong>", "Trace</th>"})
    EXPECT_FALSE(has(open, confidential)) << confidential;
}

TEST(Report, MarksARunThatIsNotPrivateAtTheTop) {
  for (const bool is_public : {false, true}) {
    const std::string page = page_of({.secure = false}, is_public);
    const std::size_t alarm = page.find("<h2>Not private</h2>");
    ASSERT_NE(alarm, std::string::npos);
    EXPECT_LT(alarm, page.find("<h1>"));
    EXPECT_TRUE(has(page, "noise and sampling follow from the public seed"));
    EXPECT_TRUE(has(page, "This run promises nothing."));
    EXPECT_FALSE(has(page, "What this model reveals about any one person is limited"));
    EXPECT_FALSE(has(page, "The promise above holds for every training record"));
  }
}

TEST(Report, EscapesWhatComesFromTheRun) {
  const std::string hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>";
  MadeUpRun made_up{.yaml = "    public_modules: ['" + hostile + "']\n"};
  made_up.change = [&](const std::string& kind, std::vector<cbor::Entry>& fields) {
    for (cbor::Entry& field : fields) {
      if (kind != "run_header") continue;
      if (field.key.as_text() == "specification") field.value = hostile;
      if (field.key.as_text() == "layout_hash") field.value = "\"><b>" + hostile;
      if (field.key.as_text() == "not_private") field.value = cbor::array({hostile});
    }
  };
  for (const bool is_public : {false, true}) {
    const std::string page = page_of(made_up, is_public, "<i>run");
    EXPECT_FALSE(has(page, "<script"));
    EXPECT_FALSE(has(page, "<img"));
    EXPECT_FALSE(has(page, "<i>run"));
    EXPECT_TRUE(has(page, "&lt;script&gt;alert(1)&lt;/script&gt;"));
  }
}

TEST(Report, PublicPagesNameNoDataFile) {
  const MadeUpRun made_up{.yaml = "data:\n  format: csv\n  train: patients-of-ward-7.csv\n"};
  EXPECT_TRUE(has(page_of(made_up, false), "patients-of-ward-7"));
  EXPECT_FALSE(has(page_of(made_up, true), "patients-of-ward-7"));
}

TEST(Report, OfAHundredThousandStepsIsSmall) {
  const std::string page =
      page_of({.planned = 100000, .steps = 100000, .steps_per_epoch = 100, .noise = 100}, false);
  EXPECT_LT(page.size(), 500'000u);
  EXPECT_TRUE(has(page, "the band spans the"));
}

TEST(Report, IsReadableByTheOwnerAloneUnlessItIsPublic) {
  const Folder folder;
  MadeUpRun{}.write(folder / "run");
  const auto others = std::filesystem::perms::group_read | std::filesystem::perms::others_read;
  for (const bool is_public : {false, true}) {
    write_report(folder / "run", is_public, default_report(folder / "run", is_public));
    const auto mode =
        std::filesystem::status(default_report(folder / "run", is_public)).permissions();
    EXPECT_EQ((mode & others) != std::filesystem::perms::none, is_public);
  }
}

MadeUpRun with_released_metrics(const std::string& ended = "completed", double data = 0) {
  MadeUpRun run{.data = data, .yaml = "    metrics: {release: dp}\n", .ended = ended};
  if (ended == "interrupted") run.steps = 15;
  run.change = [](const std::string& kind, std::vector<cbor::Entry>& fields) {
    if (kind == "iter")
      fields.push_back(
          {"released", cbor::map({{"clip_fraction", 0.4321},
                                  {"group_clip_fraction", cbor::array({0.25, 1.125})}})});
  };
  return run;
}

TEST(Report, ShowsReleasedMetricsToEveryone) {
  for (const bool is_public : {false, true}) {
    const std::string page = page_of(with_released_metrics(), is_public);
    EXPECT_TRUE(has(page, "Clipped records, as released"));
    EXPECT_TRUE(has(page, "ending at 0.43210"));
    EXPECT_TRUE(has(page, "By part, in the last step: 0.25, 1.125."));
  }
  EXPECT_EQ(page_of(with_released_metrics(), true),
            page_of(with_released_metrics("completed", 0.37), true));
  // What nobody paid for is not shown, whatever the trace says of it.
  MadeUpRun unpaid = with_released_metrics();
  unpaid.yaml = {};
  EXPECT_FALSE(has(page_of(unpaid, true), "records, as released"));
  EXPECT_FALSE(has(page_of(unpaid, false), "records, as released"));
  // Of a run that was stopped there are as many as it had steps: that number is not public.
  EXPECT_FALSE(has(page_of(with_released_metrics("interrupted"), true), "records, as released"));
}

// Against long double: where the exact percentage is a hair above a printed one, the next is taken.
TEST(Report, NeverUnderstatesHowOftenAGuessIsRight) {
  for (double epsilon = 1e-6; epsilon < 11; epsilon = epsilon * 1.01 + 1e-4) {
    const long double share = 1 - (1 - 1e-5L) / (1 + std::exp(static_cast<long double>(epsilon)));
    EXPECT_GE(right_guesses_percent(epsilon, 1e-5), static_cast<double>(100 * share)) << epsilon;
    EXPECT_LE(right_guesses_percent(epsilon, 1e-5), static_cast<double>(100 * share) + 0.2);
  }
  // 73.2 %, to the bit: log(0.732 / 0.268), rounded up.
  const double at = std::nextafter(std::log(0.732 / 0.268), 2.0);
  EXPECT_EQ(right_guesses_percent(at, 0), 73.3);
}

TEST(Report, BoundsHowOftenAGuessIsRight) {
  EXPECT_EQ(right_guesses_percent(0, 0), 50);
  EXPECT_EQ(right_guesses_percent(0, 1), 100);
  EXPECT_EQ(right_guesses_percent(1, 0), 73.2);       // e / (1 + e) = 0.73106
  EXPECT_EQ(right_guesses_percent(8, 1e-5), 99.967);  // 0.9996647
  EXPECT_EQ(right_guesses_percent(2.93, 1e-5), 95);   // 0.94932
  EXPECT_EQ(right_guesses_percent(1000, 1e-5), 100);
}

}  // namespace
}  // namespace discreet::report
