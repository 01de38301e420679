#include "discreet/data/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "discreet/base/error_testing.h"
#include "discreet/data/dataset.h"
#include "discreet/data/files_testing.h"

namespace discreet::data {
namespace {

CsvSchema schema() {
  CsvSchema out;
  out.numeric["age"] = {0, 120};
  out.numeric["pay"] = {-1, 1};
  out.categorical["country"] = {{"US", "FR"}, true};
  out.label.name = "rich";
  out.label.classes = {"0", "1"};
  return out;
}

// Numbers whose decimal text is long, of which every other one is the table's.
const std::vector<double> kPay = {1.0 / 3, 9, -2e-17, 9, 0.1 + 0.2, 9};
const std::vector<double> kAge = {30, 61.5, 200}, kRich = {0, 1, 1};

Table table() {
  Table out;
  out.rows = 3;
  out.columns = {{"age", kAge.data(), 1, {}},
                 {"country", nullptr, 1, {"US", "MX, \"north\"", "FR"}},
                 {"pay", kPay.data(), 2, {}},
                 {"rich", kRich.data(), 1, {}}};
  return out;
}

TEST(Table, IsReadAsACsvFileOfTheSameRecords) {
  const Folder folder;
  write_text(folder / "d.csv",
             "age,country,pay,rich\n30,US,0.33333333333333331483,0\n"
             "61.5,\"MX, \"\"north\"\"\",-2e-17,1\n200,FR,0.30000000000000004441,1\n");
  const Dataset file = read_csv(folder / "d.csv", schema()), memory = read_table(table(), schema());
  EXPECT_EQ(memory.x, file.x);
  EXPECT_EQ(memory.label, (std::vector<std::uint32_t>{0, 1, 1}));
  EXPECT_EQ(memory.digest, file.digest);
  EXPECT_TRUE(memory.anchors.empty());
  EXPECT_EQ(file.anchors.size(), 3u);
}

TEST(Table, NamesRowAndColumnOfWhatCannotBeRead) {
  const std::vector<double> missing = {30, std::numeric_limits<double>::quiet_NaN(), 20};
  Table bad = table();
  bad.columns[0].numbers = missing.data();
  EXPECT_SAYS(refusal([&] { read_table(bad, schema()); }, ErrorCode::kMalformed),
              "row 1, column age: is empty");
  EXPECT_EQ(read_table(bad, schema(), BadRow::kSkip).rows, 2u);
  EXPECT_EQ(read_table(bad, schema(), BadRow::kSkip).skipped.size(), 1u);
  bad = table();
  const std::vector<double> endless = {30, 20, std::numeric_limits<double>::infinity()};
  bad.columns[0].numbers = endless.data();
  EXPECT_SAYS(refusal([&] { read_table(bad, schema()); }, ErrorCode::kMalformed),
              "row 2, column age");
  bad = table();
  bad.columns[0].name = "agee";
  EXPECT_SAYS(refusal([&] { read_table(bad, schema()); }), "did you mean agee?");
}

TEST(Table, ItsDigestChangesWithEveryPartOfIt) {
  const Digest digest = digest_of(table());
  EXPECT_EQ(digest_of(table()), digest);
  Table other = table();
  other.columns[0].name = "old";
  EXPECT_NE(digest_of(other), digest);
  other = table();
  other.columns[1].words[2] = "US";
  EXPECT_NE(digest_of(other), digest);
  other = table();
  other.columns[2].stride = 1;
  EXPECT_NE(digest_of(other), digest);
}

}  // namespace
}  // namespace discreet::data
