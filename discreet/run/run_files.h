#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/random/key.h"
#include "discreet/run/checkpoint.h"
#include "discreet/run/trace.h"

namespace discreet::run {

class StepCount;

// The directory of a run, held by one process at a time, and the order in which its files become
// durable:
//
//   config.yaml, then secret.key, then the header of trace.jsonl, then the first step;
//   the lines of a step before the checkpoint that has it, and before any model made from it;
//   the model, then `run_end` with its digest, then the seal of the trace (run/trace_seal.h).
//
// trace.steps (run/step_count.h) exists from before the header until the final trace is sealed:
// cutting off the end of the trace does not lower what a resumed run charges again.
//
// So a key is accompanied by its settings from the start, and everything that a checkpoint or a
// model reveals is in the trace: the `iter` lines count every released step. A process may be
// killed at any point. If there is no complete header, nothing was drawn; otherwise the steps after
// the checkpoint (or all steps, if there is none) are executed again.
//
// A key is never used with other gradients: streams are derived from the secret, the hash of the
// configuration and the digest of the data together (run_key), so a secret.key copied to other
// settings or other data gives other streams.

// The properties in the first line of a trace that a continuing run must match.
struct RunHeader {
  std::string specification;
  std::string config_hash, layout_hash, data_commitment;  // hexadecimal
  std::string generator;                                  // of the noise, as spelling() writes it
  cbor::Value environment;
  // For a run of a corpus: the number of admitted contributions, and the digest of their hashes in
  // order, in hexadecimal; not written by earlier versions.
  std::optional<std::uint64_t> admitted = {};
  std::optional<std::string> admitted_hash = {};
};

// RUN/config.yaml as written at the start. File names are relative to RUN. If files share no folder
// with RUN except the root, they are given by name only and found in RUN or where RUN/places.json
// says, which only the operator can read. The private key of a ledger is not named. A file written
// by an earlier version has whole paths, and has_whole_paths is set. Throws kIoError, and as
// load_config().
Config read_config(const std::filesystem::path& run);

class RunFiles {
 public:
  // resume: if false, creates the directory; throws kInvalidInput if it exists and is not empty. If
  // true, the directory must exist. Its config.yaml must match `resolved`, otherwise kInvalidInput
  // naming each key that differs with both values; a run that was never started is started.
  // secret: the secret.key of the run that is executed again; by default that of the directory.
  // Throws kMalformed if the trace was changed or shortened since it was sealed, kIoError if the
  // directory cannot be written or another process holds it.
  RunFiles(std::filesystem::path directory, const Config& resolved, bool resume,
           const std::optional<std::filesystem::path>& secret = std::nullopt);
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  const std::filesystem::path& directory() const noexcept { return directory_; }
  // The key in secret.key; the key of the public seed if the configuration is not secure.
  const random::Key& secret() const noexcept { return *secret_; }
  // The header written by an earlier process; empty if the run was not started.
  const std::optional<RunHeader>& header() const noexcept { return header_; }
  std::optional<Checkpoint> checkpoint(const random::Key& key, const Expected& expected) const;
  // The number of steps released after that position, which belongs to a checkpoint of step t: the
  // `iter` lines after it plus those missing according to trace.steps. Without that file, unless
  // the trace ends with a sealed run_end, lines may have been cut off; then all planned steps count
  // (kInvalidInput if none were planned).
  std::uint64_t steps_after(const TracePosition& at, std::uint64_t t) const;

  // The last signed note of the ledger that the run writes to; later seals contain it.
  void keep_ledger_note(std::string note) { ledger_note_ = std::move(note); }

  // Starts the trace, or continues from `at` on the same bits (TraceWriter::reexecute).
  void begin_trace(const cbor::Value& header, const TracePosition& at);
  // Seals the start of the trace again, with a newer note.
  void seal_beginning() const { seal(trace_->position()); }
  // Continues after steps that may be executed on other bits (TraceWriter::extend).
  void extend_trace(const TracePosition& at, const cbor::Value& resumed);

  void append(std::string_view kind, const cbor::Value& record);
  void flush() { trace_->flush(); }
  // Whether lines of an earlier process must still be repeated before the run can end.
  bool is_repeating() const { return trace_->is_repeating(); }
  // Flushes the trace, then writes the checkpoint, which states the position of the trace.
  void write_checkpoint(Checkpoint checkpoint, const random::Key& key);
  // Flushes the trace, then writes the model.
  void write_model(ByteView bytes);
  // Ends the trace: writes the line `run_end` with the SHA-256 of the model from write_model(),
  // then the seal.
  void end(const cbor::Value& line);

  // Removes the files of a run that this process started and that released nothing.
  void remove_if_new() noexcept;

 private:
  void open_config(const Config& resolved);
  void open_secret(const Config& resolved, const std::optional<std::filesystem::path>& elsewhere);
  std::vector<TraceLine> open_header();
  void require_seal(std::span<const TraceLine> trace) const;
  bool ends_sealed(std::span<const TraceLine> trace) const;
  void count_from(std::uint64_t steps);
  void seal(const TracePosition& position) const;
  void require_place() const;
  std::filesystem::path at(const char* name) const { return directory_ / name; }

  std::filesystem::path directory_;
  bool new_ = false;  // this process created the run
  bool made_directory_ = false;
  int lock_ = -1;
  std::optional<random::Key> secret_;
  std::optional<RunHeader> header_;
  std::optional<TraceWriter> trace_;
  std::optional<Digest> model_;  // of the model that this process wrote
  std::string ledger_note_;
  std::optional<std::uint64_t> planned_;
  std::unique_ptr<StepCount> count_;
  std::uint64_t steps_ = 0;    // number of `iter` lines up to the current position
  std::uint64_t counted_ = 0;  // the count in trace.steps
  bool recount_ = false;       // missing lines are charged with the next checkpoint
};

// The differences between two configurations: "noise_multiplier was 1 and is 2; …"; empty if equal.
std::string config_difference(const Config& before, const Config& now);

}  // namespace discreet::run
