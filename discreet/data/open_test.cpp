#include "discreet/data/open.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "discreet/base/error_testing.h"
#include "discreet/data/files_testing.h"
#include "discreet/data/private_bounds.h"

namespace discreet::data {
namespace {

Config csv_config() {
  Config config;
  config.data.format = DataFormat::kCsv;
  config.data.train = "d.csv";
  config.data.label = "bought";
  config.data.classes = {"no", "yes"};
  config.data.numeric = {{"age", {0, 100}}};
  config.data.categorical = {{"town", {"Bern", "*"}}};
  return config;
}

TEST(OpenData, ReadsTheDigitsByDefault) {
  const Data data = open_data({}, "/nowhere");
  EXPECT_EQ(data.train.rows, 1437u);
  EXPECT_EQ(data.test->rows, 360u);
  EXPECT_TRUE(data.before.empty());
}

TEST(OpenData, ReadsFilesBesideTheConfiguration) {
  const Folder folder;
  write_gzip(folder / "d.csv", "age,town,bought\n50,Bern,yes\n100,Chur,no\n");
  Config config = csv_config();
  config.data.test = "d.csv";
  const Data data = open_data(config, folder.path());
  EXPECT_EQ(data.train.x, (std::vector<float>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(data.train.label, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_EQ(data.test->digest, data.train.digest);
  config.data.train = (folder / "d.csv").string();
  EXPECT_EQ(open_data(config, folder.path()).train.digest, data.train.digest);
}

TEST(OpenData, SaysWhatTheSectionLacksOrContradicts) {
  const auto refused = [](const std::function<void(DataConfig&)>& change) {
    Config config = csv_config();
    change(config.data);
    return refusal([&] { open_data(config, "/nowhere"); }, ErrorCode::kInvalidDpConfig);
  };
  EXPECT_SAYS(refused([](auto& d) { d.label.reset(); }), "data.label is missing");
  EXPECT_SAYS(refused([](auto& d) { d.train.reset(); }), "data.train is missing");
  EXPECT_SAYS(refused([](auto& d) { d.classes.clear(); }), "label_bounds: [lower, upper]");
  EXPECT_SAYS(refused([](auto& d) { d.label_bounds = {0, 1}; }), "are both set");
  EXPECT_SAYS(refused([](auto& d) { d.classes = {"a"}; }), "at least two");
  EXPECT_SAYS(refused([](auto& d) { d.separator = ",,"; }), "data.separator is ',,'");
  EXPECT_SAYS(refused([](auto& d) { d.numeric.clear(), d.categorical.clear(); }),
              "numeric: {AGE: [0, 120]}");
  EXPECT_SAYS(refused([](auto& d) { d.private_bounds = {"age"}; }), "also declared elsewhere");
  EXPECT_SAYS(refused([](auto& d) { d.private_bounds = {"pay"}; }), "the secret noise of a run");
  EXPECT_SAYS(refused([](auto& d) { d.class_count = 2; }),
              "data.class_count has no effect with data.format: csv");
  EXPECT_SAYS(refused([](auto& d) { d.format = DataFormat::kDigits; }),
              "data.train has no effect with data.format: digits; set data.format to csv or idx");
  EXPECT_SAYS(refused([](auto& d) { d.test = "t.csv", d.holdout = 0.5; }), "keep one of them");
  EXPECT_SAYS(refused([](auto& d) { d.image = {2}; }), "expected [height, width]");
  const auto arrays = [](const std::function<void(DataConfig&)>& change) {
    Config config;
    config.data.format = DataFormat::kNpy;
    config.data.train = "x.npy";
    config.data.train_labels = "y.npy";
    config.data.class_count = 2;
    config.data.bounds = {0, 1};
    change(config.data);
    return refusal([&] { open_data(config, "/nowhere"); }, ErrorCode::kInvalidDpConfig);
  };
  EXPECT_SAYS(arrays([](auto& d) { d.train_labels.reset(); }), "data.train_labels is missing");
  EXPECT_SAYS(arrays([](auto& d) { d.bounds.clear(); }), "an unaccounted release");
  EXPECT_SAYS(arrays([](auto& d) { d.class_count.reset(); }), "data.class_count is missing");
  EXPECT_SAYS(arrays([](auto& d) { d.test = "t.npy"; }), "set without data.test_labels");
}

TEST(OpenData, NamesFileLineAndColumnOfBadContent) {
  const Folder folder;
  const auto refused = [&](const std::string& text, ErrorCode code = ErrorCode::kMalformed) {
    write_text(folder / "d.csv", text);
    return refusal([&] { open_data(csv_config(), folder.path()); }, code);
  };
  const std::string header = "age,town,bought\n";
  EXPECT_SAYS(refused(""), "is empty; it needs a header line");
  EXPECT_SAYS(refused(header), "d.csv has no records");
  EXPECT_SAYS(refused(header + "1,Bern,maybe\n"),
              "d.csv:2: column bought: 'maybe' is not one of the declared classes");
  for (const char* bad : {"nan", "inf", "-inf", "1e999", "x", ""})
    EXPECT_SAYS(refused(header + "1,Bern,no\n" + bad + ",Bern,no\n"), "d.csv:3: column age: ");
  EXPECT_SAYS(refused(header + std::string(17 << 20, 'x') + "\n"),
              "d.csv:2: the line has more than");
  EXPECT_SAYS(refused(header + "1,Bern\n"), "d.csv:2: found 2 fields; the header has 3");
  EXPECT_SAYS(refused("age,town,bougth\n1,a,no\n", ErrorCode::kInvalidDpConfig),
              "has no column bought; did you mean bougth?");
  Config directory = csv_config();
  directory.data.train = ".";
  EXPECT_SAYS(refusal([&] { open_data(directory, folder.path()); }, ErrorCode::kInvalidInput),
              "Is a directory; give a file");
  Config missing = csv_config();
  missing.data.train = "none.csv";
  EXPECT_SAYS(refusal([&] { open_data(missing, folder.path()); }, ErrorCode::kInvalidInput),
              "No such file or directory; check the path");
  std::string rows = header;
  for (int i = 0; i < 20000; ++i) rows += std::to_string(i % 97) + ",Bern,no\n";
  write_gzip(folder / "d.csv", rows);
  std::filesystem::resize_file(folder / "d.csv", std::filesystem::file_size(folder / "d.csv") / 2);
  EXPECT_SAYS(refusal([&] { open_data(csv_config(), folder.path()); }, ErrorCode::kMalformed),
              "damaged or truncated");
  write_text(folder / "d.csv", header + "1,Bern,no\nnan,Bern,no\n3,Bern,maybe\n");
  const Data skipped = open_data(csv_config(), folder.path(), BadRow::kSkip);
  EXPECT_EQ(skipped.train.rows, 1u);
  EXPECT_EQ(skipped.train.skipped, (std::vector<std::uint64_t>{1, 2}));
  // Beyond the declared bounds is no error: it counts as the bound.
  write_text(folder / "d.csv", header + "1e9,Bern,no\n");
  EXPECT_EQ(open_data(csv_config(), folder.path()).train.x[0], 1.0f);
}

// Which records are held out, as ages (all different).
std::set<float> held_out(const std::vector<int>& ages, double fraction, std::uint64_t seed = 0) {
  const Folder folder;
  std::string text = "age,town,bought\n";
  for (const int age : ages) text += std::to_string(age) + ",Bern,no\n";
  write_text(folder / "d.csv", text);
  Config config = csv_config();
  config.privacy.seed = seed;
  config.data.numeric = {{"age", {0, 100000}}};
  config.data.holdout = fraction;
  const Data data = open_data(config, folder.path());
  EXPECT_EQ(data.train.rows + data.test->rows, ages.size());
  EXPECT_EQ(data.train.x.size(), data.train.rows * data.train.features);
  std::set<float> trained, out;
  for (std::size_t i = 0; i < data.train.rows; ++i) trained.insert(data.train.x[i * 3]);
  for (std::size_t i = 0; i < data.test->rows; ++i) out.insert(data.test->x[i * 3]);
  for (const float age : out) EXPECT_FALSE(trained.contains(age));
  EXPECT_EQ(trained.size() + out.size(), ages.size());
  return out;
}

// 2,000 coins of 1/4: 500 +- 19.4; 6 deviations are 117.
TEST(OpenData, HoldsOutByACoinOfTheRecordItself) {
  std::vector<int> ages(2000);
  for (int i = 0; i < 2000; ++i) ages[static_cast<std::size_t>(i)] = i * 13;
  const std::set<float> before = held_out(ages, 0.25);
  EXPECT_NEAR(static_cast<double>(before.size()), 500, 117);
  // Without one record, or in another order, every other stays where it was.
  for (const std::size_t gone : {0u, 1u, 777u, 1999u}) {
    std::vector<int> fewer = ages;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(gone));
    std::set<float> expected = before;
    expected.erase(2 * static_cast<float>(ages[gone] / 100000.0) - 1);
    const std::set<float> after = held_out(fewer, 0.25);
    EXPECT_LE(before.size() - after.size(), 1u);
    EXPECT_TRUE(std::includes(before.begin(), before.end(), after.begin(), after.end()));
  }
  EXPECT_EQ(held_out({ages.rbegin(), ages.rend()}, 0.25), before);
  EXPECT_NE(held_out(ages, 0.25, 1), before);
  // More is held out of the same, not others.
  const std::set<float> more = held_out(ages, 0.5);
  EXPECT_TRUE(std::includes(more.begin(), more.end(), before.begin(), before.end()));
}

TEST(OpenData, ReleasesPrivateBoundsBeforeItMapsRecords) {
  const Folder folder;
  std::string text = "age,town,bought,pay\n";
  for (int i = 0; i < 3000; ++i) text += "50,Bern,no," + std::to_string(1100 + i % 800) + "\n";
  write_text(folder / "d.csv", text);
  Config config = csv_config();
  config.data.private_bounds = {"pay"};
  config.privacy.secure = false;
  const random::Generator noise = private_bounds_stream(config.privacy, random::Key::from_seed(1));
  const Data data = open_data(config, folder.path(), BadRow::kRefuse, &noise);
  EXPECT_EQ(data.released_bounds.at("pay"), (std::vector<double>{1024, 2048}));
  ASSERT_EQ(data.before.size(), 1u);
  EXPECT_EQ(data.before[0].event.adjacency(), config.privacy.adjacency);
  EXPECT_EQ(data.train.feature_names.back(), "pay");
  EXPECT_EQ(data.train.x[3], static_cast<float>(2 * (1100 - 1024) / 1024.0 - 1));
  EXPECT_SAYS(data.notes.at(0), "pay in [1024, 2048]");
}

TEST(OpenData, ImagesHaveTheirHeightAndWidth) {
  const Folder folder;
  const std::string x("\0\0\x08\x03\0\0\0\1\0\0\0\2\0\0\0\3abcdef", 22);
  const std::string y("\0\0\x08\x01\0\0\0\1\2", 9);
  write_text(folder / "x", x);
  write_text(folder / "y", y);
  Config config;
  config.data.format = DataFormat::kIdx;
  config.data.train = "x";
  config.data.train_labels = "y";
  const Data data = open_data(config, folder.path());
  EXPECT_EQ(data.train.height, 2u);
  EXPECT_EQ(data.train.width, 3u);
  EXPECT_EQ(data.train.classes, 10u);
  write_text(folder / "d.csv", "age,town,bought\n1,Bern,no\n");
  Config csv = csv_config();
  csv.data.image = {2, 2};
  EXPECT_SAYS(refusal([&] { open_data(csv, folder.path()); }, ErrorCode::kInvalidDpConfig),
              "data.image is [2, 2], but a record has 3 features");
}

}  // namespace
}  // namespace discreet::data
