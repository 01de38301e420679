#include "discreet/data/input.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/data/files_testing.h"

namespace discreet::data {
namespace {

std::vector<std::string> lines(const std::filesystem::path& path) {
  Input input(path);
  std::vector<std::string> out;
  std::string_view line;
  while (input.line(line)) out.emplace_back(line);
  return out;
}

ErrorCode failure(const std::filesystem::path& path) {
  try {
    lines(path);
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find(path.string()), std::string::npos);
    return error.code();
  }
  ADD_FAILURE() << "read " << path;
  return ErrorCode::kInvalidInput;
}

TEST(Input, GivesLinesWhateverTheirEndsAndHoweverTheyArePacked) {
  const Folder folder;
  const std::string text = "one\r\ntwo\n\nlast without end";
  const std::vector<std::string> expected = {"one", "two", "", "last without end"};
  write_text(folder / "plain", text);
  write_gzip(folder / "packed", text);
  EXPECT_EQ(lines(folder / "plain"), expected);
  EXPECT_EQ(lines(folder / "packed"), expected);
  write_text(folder / "empty", "");
  EXPECT_TRUE(lines(folder / "empty").empty());
}

TEST(Input, GivesLinesLongerThanItsPieces) {
  const Folder folder;
  const std::string longest(3'000'000, 'x');
  write_gzip(folder / "long", longest + "\nshort\n" + longest);
  EXPECT_EQ(lines(folder / "long"), (std::vector<std::string>{longest, "short", longest}));
}

TEST(Input, SaysWhatIsWrongWithAFile) {
  const Folder folder;
  EXPECT_EQ(failure(folder / "missing"), ErrorCode::kInvalidInput);
  EXPECT_EQ(failure(folder.path()), ErrorCode::kInvalidInput);
  write_gzip(folder / "cut", std::string(100000, 'a') + "b" + std::string(100000, 'c'));
  Bytes bytes = read_file(folder / "cut");
  bytes.resize(bytes.size() / 2);
  write_atomically(folder / "cut", bytes);
  EXPECT_EQ(failure(folder / "cut"), ErrorCode::kMalformed);
  write_gzip(folder / "endless", std::string(std::size_t{20} << 20, 'a'));
  EXPECT_EQ(failure(folder / "endless"), ErrorCode::kMalformed);
}

TEST(Input, StopsUnpackingWhatWasMadeToFillMemory) {
  const Folder folder;
  // 200 MB of one line each, in 200 kB.
  write_gzip(folder / "bomb", std::string(200'000'000, '\n'));
  ASSERT_LT(std::filesystem::file_size(folder / "bomb"), 400'000u);
  Input input(folder / "bomb");
  std::string_view line;
  std::size_t count = 0;
  try {
    while (input.line(line)) ++count;
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find("times its size"), std::string::npos) << error.sentence();
  }
  EXPECT_LT(count, 160'000'000u);
  // As is an ordinary table, however well it compresses.
  write_gzip(folder / "table", std::string(30'000'000, '\n'));
  Input table(folder / "table");
  for (count = 0; table.line(line);) ++count;
  EXPECT_EQ(count, 30'000'000u);
}

}  // namespace
}  // namespace discreet::data
