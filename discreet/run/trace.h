#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/base/hash.h"

// `trace.jsonl`: what happened in a run, line by line. Confidential: it holds values that depend on
// the data.
//
// A line is one JSON object (base/json.h) with `kind` ("run_header", "iter", "evaluation",
// "warning", "failure", "resumed", "run_end") and `prev`, the SHA-256 in hexadecimal of the line
// before without its newline; of the first line it is 64 zeros. The first line is the run_header
// and says "confidential": true. So whoever keeps the digest of the last line can tell whether any
// line was changed, removed or put in between.
namespace discreet::run {

// The end of a trace: how long it is, and the digest of its last line.
struct TracePosition {
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  Digest head{};  // zeros while there is no line
  friend bool operator==(const TracePosition&, const TracePosition&) = default;
};

class TraceWriter {
 public:
  // Begins a trace with its header (a map; `kind`, `confidential` and `prev` are added, by append()
  // too). Throws kIoError if the file exists already or cannot be written.
  static TraceWriter create(const std::filesystem::path& path, const cbor::Value& header);

  // Continues a trace after the position a checkpoint recorded. Lines beyond it belong to steps
  // that the checkpoint does not know: they are cut off, and a `resumed` line says how many. Throws
  // kMalformed, naming the line, if the trace up to there is not the one that was recorded; the
  // file is then as it was.
  static TraceWriter resume(const std::filesystem::path& path, const TracePosition& at);

  // Continues a trace of which the lines after `at` will be written again, the same in every byte,
  // because the steps they tell of are executed again on the same bits. They stay: append()
  // compares with them and throws kMalformed, naming line and first difference, if one is not the
  // same. Before that, lines at the end that only say how a run stopped are cut off: a line without
  // newline, a run_end that was "interrupted" or lacks the model's digest, a "resumed" that nothing
  // follows. Throws as resume().
  static TraceWriter reexecute(const std::filesystem::path& path, const TracePosition& at);

  // Continues a trace after its last whole line, keeping all: the steps after `at` happened, and
  // are executed again on what may be other bits. Adds `resumed`, a map, as a line of that kind.
  // Throws kMalformed, naming the line, if the chain is broken or does not pass through `at`.
  static TraceWriter extend(const std::filesystem::path& path, const TracePosition& at,
                            const cbor::Value& resumed);

  // Adds a line: `record` is a map without `kind` and `prev`. Throws kIoError if it cannot be
  // written whole (the file then ends with the line before) and kInvalidInput if JSON cannot hold
  // it.
  void append(std::string_view kind, const cbor::Value& record);
  // Flushes to the disk.
  void flush();
  const TracePosition& position() const noexcept { return position_; }

  ~TraceWriter();
  TraceWriter(TraceWriter&&) noexcept;

 private:
  struct File;
  explicit TraceWriter(std::unique_ptr<File> file);
  std::unique_ptr<File> file_;
  TracePosition position_;
  std::string again_;  // lines after position_ that are in the file and must come again
};

// A line of a trace as it stands in the file, without its newline.
struct TraceLine {
  std::string kind;
  std::string text;
};
// The whole lines after `from`, the chain checked up to them and between them (kMalformed, as
// verify_trace). A last line without newline, which a killed process leaves, is not among them.
std::vector<TraceLine> trace_lines(const std::filesystem::path& path,
                                   const TracePosition& from = {});

// The first thing in which two lines of a trace differ, as a sentence ("norm_p50 was 1.5 and
// is 2.5"); empty if they are equal.
std::string difference(std::string_view before, std::string_view now);

// Reads a whole trace and checks its chain; with `head`, also that it ends with that digest. Throws
// kMalformed with the number of the first wrong line (counted from 1) and what is wrong: no JSON,
// no object, another `prev`, no header first, a last line without newline.
TracePosition verify_trace(const std::filesystem::path& path,
                           const std::optional<Digest>& head = std::nullopt);

}  // namespace discreet::run
