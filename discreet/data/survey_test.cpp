#include "discreet/data/survey.h"

#include <gtest/gtest.h>

#include "discreet/base/error_testing.h"
#include "discreet/data/files_testing.h"

namespace discreet::data {
namespace {

TEST(Survey, TellsNumbersFromWordsWhateverIsMissing) {
  const Folder folder;
  write_text(folder / "d.csv", "age; town ;pay\n 1;Bern;?\n?; Chur;2.5\n NA ;Bern;-1e3\n4;7;\n");
  const Survey found = survey_csv(folder / "d.csv", {});
  EXPECT_EQ(found.separator, ';');
  ASSERT_EQ(found.columns.size(), 3u);
  EXPECT_TRUE(found.column("age").is_numeric && found.column("pay").is_numeric);
  EXPECT_FALSE(found.column("town").is_numeric);
  EXPECT_EQ(found.column("town").words, (std::vector<std::string>{"7", "Bern", "Chur"}));
  EXPECT_SAYS(refusal([&] { found.column("twon"); }, ErrorCode::kInvalidInput),
              "did you mean town? the columns are age, town, pay");
}

TEST(Survey, AsksForNamesWhereTheHeaderIsMissing) {
  const Folder folder;
  write_text(folder / "d.csv", "39, Bern\n40, Chur\n");
  const auto says = [&](const std::vector<std::string>& header) {
    return refusal([&] { survey_csv(folder / "d.csv", header); }, ErrorCode::kInvalidInput);
  };
  EXPECT_SAYS(says({}), "its first line, which begins with '39', is a record; name its 2 columns");
  EXPECT_SAYS(says({"a", "a"}), "a name twice");
  EXPECT_SAYS(refusal(
                  [&] {
                    survey_csv(folder / "d.csv", {"a", "b", "c"});
                  },
                  ErrorCode::kMalformed),
              "d.csv:1: found 2 fields; the header has 3");
  EXPECT_EQ(survey_csv(folder / "d.csv", {"a", "b"}).column("b").words,
            (std::vector<std::string>{"Bern", "Chur"}));
}

TEST(Survey, KeepsAFewWords) {
  const Folder folder;
  std::string text = "name\n";
  for (std::size_t i = 0; i <= kMostSurveyedWords; ++i) text += "p" + std::to_string(i) + "\n";
  write_text(folder / "d.csv", text);
  const Survey found = survey_csv(folder / "d.csv", {});
  EXPECT_EQ(found.columns[0].words.size(), kMostSurveyedWords);
  EXPECT_TRUE(found.columns[0].has_more_words);
}

}  // namespace
}  // namespace discreet::data
