#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/base/hash.h"

// `trace.jsonl`: the log of a run, line by line. Confidential: it contains values that depend on
// the data.
//
// A line is one JSON object (base/json.h) with `kind` ("run_header", "iter", "evaluation",
// "warning", "failure", "resumed", "run_end") and `prev`, the SHA-256 in hexadecimal of the
// previous line without its newline; for the first line, 64 zeros. The first line is the run_header
// and contains "confidential": true. If you keep the digest of the last line, you can detect any
// line that was changed, removed or inserted.
namespace discreet::run {

// The end of a trace: its length, and the digest of its last line.
struct TracePosition {
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  Digest head{};  // zeros if there is no line
  friend bool operator==(const TracePosition&, const TracePosition&) = default;
};

class TraceWriter {
 public:
  // Starts a trace with its header (a map). create() and append() add `kind`, `confidential` and
  // `prev`. Throws kIoError if the file exists or cannot be written.
  static TraceWriter create(const std::filesystem::path& path, const cbor::Value& header);

  // Continues a trace after the position recorded in a checkpoint. Later lines belong to steps that
  // the checkpoint does not contain: they are cut off, and a `resumed` line states how many. Throws
  // kMalformed, naming the line, if the trace up to there differs from the recorded one; the file
  // is then unchanged.
  static TraceWriter resume(const std::filesystem::path& path, const TracePosition& at);

  // Continues a trace whose lines after `at` will be written again, identical in every byte,
  // because their steps are executed again on the same bits. The lines stay: append() compares with
  // them and throws kMalformed, naming line and first difference, if one differs. Before that,
  // lines at the end that only record how a run stopped are cut off: a line without newline, a
  // run_end that is "interrupted" or lacks the model's digest, a final "resumed". Throws as
  // resume().
  static TraceWriter reexecute(const std::filesystem::path& path, const TracePosition& at);

  // Continues a trace after its last complete line and keeps all lines: the steps after `at`
  // happened, and are executed again on possibly different bits. Adds `resumed`, a map, as a line
  // of that kind. Throws kMalformed, naming the line, if the chain is broken or does not pass
  // through `at`.
  static TraceWriter extend(const std::filesystem::path& path, const TracePosition& at,
                            const cbor::Value& resumed);

  // Adds a line: `record` is a map without `kind` and `prev`. Throws kIoError if it cannot be
  // written completely (the file then ends with the previous line), and kInvalidInput if JSON
  // cannot represent it.
  void append(std::string_view kind, const cbor::Value& record);
  // Flushes to disk.
  void flush();
  const TracePosition& position() const noexcept { return position_; }
  // Whether the file has lines after the position, which the next ones must repeat.
  bool is_repeating() const noexcept { return !again_.empty(); }

  ~TraceWriter();
  TraceWriter(TraceWriter&&) noexcept;

 private:
  struct File;
  explicit TraceWriter(std::unique_ptr<File> file);
  std::unique_ptr<File> file_;
  TracePosition position_;
  std::string again_;  // lines after position_ in the file that must be repeated
};

// A line of a trace as in the file, without its newline.
struct TraceLine {
  std::string kind;
  std::string text;
};
// The complete lines after `from`. Checks the chain up to and between them (kMalformed, as
// verify_trace). A last line without newline, which a killed process leaves, is excluded.
std::vector<TraceLine> trace_lines(const std::filesystem::path& path,
                                   const TracePosition& from = {});

// Whether a trace that starts with these lines passes through `at`.
bool pass_through(std::span<const TraceLine> lines, const TracePosition& at);

// The first difference between two lines of a trace, as a sentence ("norm_p50 was 1.5 and is 2.5");
// empty if they are equal.
std::string difference(std::string_view before, std::string_view now);

// Reads a whole trace and checks its chain; with `head`, also that it ends with that digest. Throws
// kMalformed with the number of the first wrong line (counted from 1) and the problem: not JSON,
// not an object, a wrong `prev`, no header first, a last line without newline.
TracePosition verify_trace(const std::filesystem::path& path,
                           const std::optional<Digest>& head = std::nullopt);

}  // namespace discreet::run
