#include "discreet/run/trace_seal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"
#include "discreet/run/secret_key.h"

namespace discreet::run {
namespace {

// A run directory with a key, a trace of `lines` lines and its seal.
struct SealedRun {
  explicit SealedRun(int lines = 3) : key(create_secret(folder / "secret.key")) {
    TraceWriter trace = TraceWriter::create(folder / "trace.jsonl", cbor::map({{"t", 0}}));
    for (int i = 1; i < lines; ++i) trace.append("iter", cbor::map({{"t", i}}));
    at = trace.position();
    write_seal(folder.path(), {at, {}}, key);
  }
  std::vector<TraceLine> trace() const { return trace_lines(folder / "trace.jsonl"); }
  Folder folder;
  random::Key key;
  TracePosition at;
};

SealCheck check(const std::filesystem::path& run, bool secure = true,
                const std::optional<std::filesystem::path>& secret = std::nullopt) {
  const SealFiles files = read_seal(run, secure, secret);
  return check_seal(files, trace_lines(run / "trace.jsonl"));
}

std::string text_of(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

void expect_rejected(const std::filesystem::path& run, const std::string& words) {
  try {
    check(run);
    ADD_FAILURE() << "accepted, expected a rejection with " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find(words), std::string::npos) << error.sentence();
  }
}

TEST(Seal, BindsTheTraceUpToItsPosition) {
  const SealedRun run;
  EXPECT_EQ(open_seal(run.folder.path(), run.key, run.trace()), (Seal{run.at, {}}));
  const SealCheck found = check(run.folder.path());
  EXPECT_TRUE(found.verified);
  EXPECT_EQ(found.lines, 3u);
}

TEST(Seal, BindsTheNoteOfALedger) {
  const SealedRun run;
  const std::string note = "corpus\n3\nroot\n\n\u2014 corpus signature\n";
  write_seal(run.folder.path(), {run.at, note}, run.key);
  EXPECT_EQ(open_seal(run.folder.path(), run.key, run.trace()), (Seal{run.at, note}));
  EXPECT_EQ(check(run.folder.path()).ledger_note, note);
  Bytes bytes = read_file(run.folder / kSealFile);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 1;
    write_atomically(run.folder / kSealFile, bytes);
    EXPECT_THROW(check(run.folder.path()), Error) << i;
    bytes[i] ^= 1;
  }
}

TEST(Seal, LinesMayFollowIt) {
  const SealedRun run;
  TraceWriter::extend(run.folder / "trace.jsonl", run.at, cbor::map({}));
  EXPECT_EQ(check(run.folder.path()).lines, 3u);
}

TEST(Seal, AShortenedTraceIsRejected) {
  const SealedRun run, shorter(2);
  std::string text = text_of(run.folder / "trace.jsonl");
  text.resize(text.rfind('\n', text.size() - 2) + 1);
  write_atomically(run.folder / "trace.jsonl", bytes_of(text));
  expect_rejected(run.folder.path(), "changed or removed");
}

TEST(Seal, ARewrittenTraceWithAWholeChainIsRejected) {
  const SealedRun run;
  std::filesystem::remove(run.folder / "trace.jsonl");
  TraceWriter trace = TraceWriter::create(run.folder / "trace.jsonl", cbor::map({{"t", 0}}));
  for (int i = 1; i < 3; ++i) trace.append("iter", cbor::map({{"t", i + 1}}));
  EXPECT_EQ(verify_trace(run.folder / "trace.jsonl").lines, 3u);
  expect_rejected(run.folder.path(), "changed or removed");
}

// Anyone who writes to the directory may put the original back between two readings of a file.
TEST(Seal, IsComparedWithTheLinesThatWereReadNotWithTheFile) {
  const SealedRun run;
  const SealFiles files = read_seal(run.folder.path(), true);
  std::vector<TraceLine> forged = run.trace();
  forged.back().text += " ";
  EXPECT_THROW(check_seal(files, forged), Error);
  EXPECT_THROW(open_seal(run.folder.path(), run.key, forged), Error);
  forged.pop_back();
  EXPECT_THROW(check_seal(files, forged), Error);
  EXPECT_TRUE(check_seal(files, run.trace()).verified);
}

TEST(Seal, ASealUnderAnotherKeyIsRejected) {
  const SealedRun run, other;
  write_seal(run.folder.path(), {run.at, {}}, other.key);
  expect_rejected(run.folder.path(), "another secret.key");
}

TEST(Seal, NoByteOfItCanChange) {
  const SealedRun run;
  const std::string seal = text_of(run.folder / kSealFile);
  for (std::size_t i = 0; i < seal.size(); ++i) {
    std::string altered = seal;
    altered[i] = altered[i] == '1' ? '2' : '1';
    write_atomically(run.folder / kSealFile, bytes_of(altered), Access::kOwner);
    EXPECT_THROW(check(run.folder.path()), Error) << i;
    write_atomically(run.folder / kSealFile, bytes_of(seal.substr(0, i)), Access::kOwner);
    EXPECT_THROW(check(run.folder.path()), Error) << i;
  }
}

TEST(Seal, WithGarbageInTheKeyFileIsRejected) {
  const SealedRun run;
  write_atomically(run.folder / "secret.key", bytes_of("key"), Access::kOwner);
  expect_rejected(run.folder.path(), "contains no key");
}

TEST(Seal, WithoutKeyOrSealIsNotVerified) {
  const SealedRun run;
  const auto why = [&](bool secure = true) {
    const SealCheck found = check(run.folder.path(), secure);
    EXPECT_FALSE(found.verified);
    return found.why_not;
  };
  EXPECT_NE(why(false).find("public seed"), std::string::npos);
  ::chmod((run.folder / "secret.key").c_str(), 0644);
  EXPECT_NE(why().find("others may read"), std::string::npos);
  ::chmod((run.folder / "secret.key").c_str(), 0600);
  std::filesystem::rename(run.folder / "secret.key", run.folder / "elsewhere");
  EXPECT_NE(why().find("secret.key does not exist"), std::string::npos);
  EXPECT_TRUE(check(run.folder.path(), true, run.folder / "elsewhere").verified);
  std::filesystem::rename(run.folder / "elsewhere", run.folder / "secret.key");
  std::filesystem::remove(run.folder / kSealFile);
  EXPECT_NE(why().find("trace.seal does not exist"), std::string::npos);
}

}  // namespace
}  // namespace discreet::run
