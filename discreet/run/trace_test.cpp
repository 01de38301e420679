#include "discreet/run/trace.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"

namespace discreet::run {
namespace {

cbor::Value header() { return cbor::map({{"accountant", "pld"}}); }
cbor::Value iter(std::uint64_t t) { return cbor::map({{"t", t}, {"clip_fraction", 0.25}}); }

std::string text_of(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

TracePosition write_three(const std::filesystem::path& path) {
  TraceWriter writer = TraceWriter::create(path, header());
  writer.append("iter", iter(0));
  writer.append("iter", iter(1));
  return writer.position();
}

TEST(Trace, IsLinesOfSortedJsonThatNameTheLineBefore) {
  const Folder folder;
  write_three(folder / "trace");
  const std::string text = text_of(folder / "trace");
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_EQ(first,
            "{\"accountant\":\"pld\",\"confidential\":true,\"kind\":\"run_header\",\"prev\":\"" +
                std::string(64, '0') + "\"}");
  const std::string second = "{\"clip_fraction\":0.25,\"kind\":\"iter\",\"prev\":\"" +
                             to_hex(sha256(bytes_of(first))) + "\",\"t\":0}";
  EXPECT_EQ(text.substr(first.size() + 1, second.size()), second);
}

TEST(Trace, VerifiesAndEndsWithTheExpectedHead) {
  const Folder folder;
  const TracePosition end = write_three(folder / "trace");
  EXPECT_EQ(verify_trace(folder / "trace"), end);
  EXPECT_EQ(verify_trace(folder / "trace", end.head), end);
  EXPECT_THROW(verify_trace(folder / "trace", Digest{}), Error);
}

TEST(Trace, NamesTheFirstLineThatWasChangedRemovedOrInserted) {
  const Folder folder;
  write_three(folder / "trace");
  const std::string good = text_of(folder / "trace");
  const std::size_t second = good.find('\n') + 1;
  const std::size_t third = good.find('\n', second) + 1;
  const auto verdict = [&](const std::string& text) -> std::string {
    write_atomically(folder / "bad", bytes_of(text));
    try {
      verify_trace(folder / "bad");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
      return error.sentence();
    }
    return "accepted";
  };
  std::string changed = good;
  changed.replace(changed.find("0.25"), 4, "0.26");
  EXPECT_TRUE(verdict(changed).starts_with("line 3 does not follow"));
  EXPECT_TRUE(verdict(good.substr(0, second) + good.substr(third)).starts_with("line 2 "));
  EXPECT_TRUE(
      verdict(good.substr(0, second) + "{}\n" + good.substr(second)).starts_with("line 2 "));
  EXPECT_TRUE(verdict(good.substr(second)).starts_with("line 1 "));
  EXPECT_TRUE(verdict(good.substr(0, good.size() - 1)).starts_with("line 3 is truncated"));
  EXPECT_TRUE(verdict(good + "not json\n").starts_with("line 4 is not a JSON object"));
  EXPECT_TRUE(verdict(good + "[1]\n").starts_with("line 4 is not a JSON object"));
  EXPECT_TRUE(verdict("").starts_with("line 1 is missing"));
  // What a chain alone cannot tell, a kept head does: the last line removed.
  EXPECT_EQ(verdict(good.substr(0, third)), "accepted");
}

TEST(Trace, ResumesWhereTheCheckpointWasWrittenAndSaysWhatItDropped) {
  const Folder folder;
  TracePosition middle;
  {
    TraceWriter writer = TraceWriter::create(folder / "trace", header());
    writer.append("iter", iter(0));
    middle = writer.position();
    writer.append("iter", iter(1));
    writer.append("iter", iter(2));
  }
  {  // and half a line, as a killed process leaves it
    std::string text = text_of(folder / "trace") + "{\"t\":3,";
    write_atomically(folder / "trace", bytes_of(text));
  }
  TraceWriter writer = TraceWriter::resume(folder / "trace", middle);
  writer.append("iter", iter(1));
  EXPECT_EQ(verify_trace(folder / "trace"), writer.position());
  EXPECT_EQ(writer.position().lines, 4u);
  EXPECT_NE(text_of(folder / "trace").find("\"dropped_lines\":3"), std::string::npos);
}

TEST(Trace, RefusesToResumeAnotherTraceAndLeavesIt) {
  const Folder folder;
  const TracePosition end = write_three(folder / "trace");
  std::string text = text_of(folder / "trace");
  text.replace(text.find("0.25"), 4, "0.26");
  write_atomically(folder / "trace", bytes_of(text));
  EXPECT_THROW(TraceWriter::resume(folder / "trace", end), Error);
  EXPECT_EQ(text_of(folder / "trace"), text);
  TracePosition beyond = end;
  beyond.bytes += 1;
  EXPECT_THROW(TraceWriter::resume(folder / "trace", beyond), Error);
}

TEST(Trace, EndsWithTheLastWholeLineWhenTheDiskIsFull) {
  const Folder folder;
  TraceWriter writer = TraceWriter::create(folder / "trace", header());
  const TracePosition before = writer.position();
  {
    const FullDisk full(before.bytes + 20);
    EXPECT_THROW(writer.append("iter", iter(0)), Error);
  }
  EXPECT_EQ(writer.position(), before);
  EXPECT_EQ(verify_trace(folder / "trace"), before);
  writer.append("iter", iter(0));
  EXPECT_EQ(verify_trace(folder / "trace").lines, 2u);
}

TEST(Trace, IsNeverBegunTwiceAndHoldsNoNan) {
  const Folder folder;
  TraceWriter writer = TraceWriter::create(folder / "trace", header());
  EXPECT_THROW(TraceWriter::create(folder / "trace", header()), Error);
  const TracePosition before = writer.position();
  EXPECT_THROW(writer.append("iter", cbor::map({{"x", 0.0 / 0.0}})), Error);
  EXPECT_EQ(writer.position(), before);
  EXPECT_THROW(TraceWriter::create(folder / "other", cbor::map({{"x", 0.0 / 0.0}})), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

TEST(TraceAgain, LinesThatComeAgainAreComparedAndTheRestIsWritten) {
  const Folder folder;
  write_three(folder / "whole");
  const std::string whole = text_of(folder / "whole");
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    write_atomically(folder / "cut", bytes_of(whole.substr(0, length)));
    TraceWriter writer = TraceWriter::reexecute(folder / "cut", {});
    writer.append("run_header", header());
    writer.append("iter", iter(0));
    writer.append("iter", iter(1));
    EXPECT_EQ(text_of(folder / "cut"), whole) << length;
  }
}

TEST(TraceAgain, ALineThatComesOutDifferentlyIsRefusedAndNamed) {
  const Folder folder;
  write_three(folder / "trace");
  const std::string before = text_of(folder / "trace");
  TraceWriter writer = TraceWriter::reexecute(folder / "trace", {});
  writer.append("run_header", header());
  try {
    writer.append("iter", cbor::map({{"t", 0}, {"clip_fraction", 0.5}}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find("line 2"), std::string::npos);
    EXPECT_NE(error.sentence().find("clip_fraction was 0.25 and is 0.5"), std::string::npos);
  }
  EXPECT_EQ(text_of(folder / "trace"), before);
}

TEST(TraceAgain, HowARunStoppedIsCutOffAndItsEndIsNot) {
  const Folder folder;
  const TracePosition at = write_three(folder / "trace");
  const std::string before = text_of(folder / "trace");
  for (const char* ended : {"interrupted", "completed"}) {
    TraceWriter writer = TraceWriter::reexecute(folder / "trace", at);
    writer.append("run_end", cbor::map({{"ended", ended}, {"model_sha256", "00"}}));
    TraceWriter::reexecute(folder / "trace", at);
    EXPECT_EQ(text_of(folder / "trace") == before, ended == std::string("interrupted"));
  }
}

TEST(TraceAgain, ExtendingKeepsEveryWholeLine) {
  const Folder folder;
  write_three(folder / "trace");
  const std::string before = text_of(folder / "trace");
  write_atomically(folder / "trace", bytes_of(before + "{\"kind\":\"it"));
  TraceWriter::extend(folder / "trace", {}, cbor::map({{"released", 2}}));
  EXPECT_EQ(text_of(folder / "trace").substr(0, before.size()), before);
  const std::vector<TraceLine> lines = trace_lines(folder / "trace");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3].kind, "resumed");
  EXPECT_EQ(verify_trace(folder / "trace").lines, 4u);
}

}  // namespace
}  // namespace discreet::run
