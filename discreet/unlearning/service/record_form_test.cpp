#include "discreet/unlearning/service/record_form.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/unlearning/service/declared_rows.h"
#include "discreet/unlearning/service/service_testing.h"

namespace discreet::unlearning {
namespace {

data::CsvSchema people() {
  data::CsvSchema columns;
  columns.numeric = {{"hours", {0, 100}}, {"age", {0, 120}}};
  columns.categorical["country"] = {{"US", "MX"}, true};
  columns.label = {"income", {"low", "high"}, 0, 0};
  return columns;
}

double norm(const std::vector<double>& z) {
  double sum = 0;
  for (const double v : z) sum += v * v;
  return std::sqrt(sum);
}

TEST(RecordForm, MapsARecordAsItsFormulaSays) {
  EXPECT_EQ(mapped({}, std::vector<double>{3, 4}, 1), (std::vector<double>{3, 4}));
  const auto scaled = mapped({true, {}}, std::vector<double>{3, 4}, 2);
  ASSERT_EQ(scaled.size(), 3u);
  EXPECT_NEAR(scaled[0], 1.2 / std::sqrt(2), 1e-12);
  EXPECT_NEAR(scaled[1], 1.6 / std::sqrt(2), 1e-12);
  EXPECT_NEAR(scaled[2], 2 / std::sqrt(2), 1e-15);
  const std::vector<double> x = {1, -1, 0, 0, 1};  // age, hours, one of three countries
  EXPECT_NEAR(norm(mapped({false, people()}, x, 2)), 2, 1e-12) << "the largest record";
  const auto whole = mapped({true, people()}, x, 2);
  EXPECT_EQ(whole.size(), 6u);
  EXPECT_NEAR(norm(whole), 2, 1e-12);
  EXPECT_NEAR(whole[1], -1, 1e-15);
  EXPECT_NEAR(whole[5], 1, 1e-15);
}

TEST(RecordForm, IsReadBackAndRejectsOtherBytes) {
  for (const RecordForm& form : {RecordForm{}, RecordForm{true, {}}, RecordForm{true, people()}}) {
    const Bytes bytes = encode(form);
    const RecordForm again = decode_record_form(bytes);
    EXPECT_EQ(encode(again), bytes);
    EXPECT_EQ(again.intercept, form.intercept);
    EXPECT_EQ(again.columns.has_value(), form.columns.has_value());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut)
      EXPECT_THROW(decode_record_form(ByteView(bytes).first(cut)), Error);
  }
  data::CsvSchema three = people();
  three.label.classes = {"a", "b", "c"};
  EXPECT_THROW(require_sound({true, three}), Error);
  data::CsvSchema twice = people();
  twice.numeric["country=US"] = {0, 1};
  EXPECT_THROW(require_sound({true, twice}), Error);
}

TEST(RecordForm, AnswersInTheWordsAndUnitsOfTheLabel) {
  EXPECT_EQ(class_of({true, people()}, 0.1), "high");
  EXPECT_EQ(class_of({true, people()}, 0), "low");
  data::CsvSchema price = people();
  price.label = {"price", {}, 100, 300};
  EXPECT_EQ(class_of({true, price}, 1), "");
  EXPECT_DOUBLE_EQ(number_of({true, price}, 1, 2), 250);
  EXPECT_DOUBLE_EQ(number_of({}, 0.75, 2), 0.75);
}

TEST(RecordForm, ReadsColumnsInAnyOrderAndLeavesLabelsBeyondTheirBounds) {
  const ledger::testing::Folder folder;
  const auto read = [&](const std::string& text, const data::CsvSchema& columns) {
    write_atomically(folder / "rows.csv", bytes_of(text));
    return declared_rows(columns, 1, folder / "rows.csv", "who", true);
  };
  const auto a = read("who,age,country,hours,income\nann,60,MX,100,high\n", people());
  const auto b = read("income,hours,note,country,age,who\nhigh,100,x,MX,60,ann\n", people());
  ASSERT_EQ(a.size(), 1u);
  EXPECT_EQ(a[0].x, (std::vector<double>{0, 1, 0, 1, 0}));  // age, hours, US, MX, others
  EXPECT_EQ(a[0].x, b[0].x);
  EXPECT_EQ(a[0].y, 1);
  EXPECT_EQ(a[0].subject, b[0].subject);
  data::CsvSchema price = people();
  price.label = {"income", {}, 100, 300};
  EXPECT_DOUBLE_EQ(read("who,age,country,hours,income\nann,60,MX,100,500\n", price)[0].y, 3);
}

}  // namespace
}  // namespace discreet::unlearning
