#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

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
//   the model, then `run_end` with its digest, then the seal of the trace (run/seal.h).
//
// trace.steps (run/step_count.h) is there from before the header until the trace is sealed at its
// end: an end that is cut off does not lower what a resumed run charges again.
//
// So a key has its settings beside it from its first moment, and what a checkpoint or a model shows
// is in the trace: whoever counts the `iter` lines knows of every step that was released. A process
// may be killed at any point. Nothing was drawn if there is no whole header; otherwise the steps
// after the checkpoint (from the beginning, if there is none) are executed again.
//
// A key is never used with other gradients: streams are derived from the secret, the hash of the
// configuration and the digest of the data together (run_key), so that a secret.key that comes to
// lie beside other settings or other data gives other streams.

// What the first line of a trace says that a run must be to go on with it.
struct RunHeader {
  std::string specification;
  std::string config_hash, layout_hash, data_commitment;  // hexadecimal
  std::string generator;                                  // of the noise, as to_string below
  cbor::Value environment;
  // Of a run of a corpus: how many contributions it admitted, and the digest of their hashes in
  // their order, hexadecimal; earlier versions did not write it.
  std::optional<std::uint64_t> admitted = {};
  std::optional<std::string> admitted_hash = {};
};

// RUN/config.yaml as it was begun. Files are found from RUN: config.yaml names them relative to it,
// or, where they have no folder in common but the root, by their names alone: those are in RUN or
// where RUN/places.json says, which only the operator can read. It does not name the private key of
// a ledger. One that an earlier version wrote has whole paths, and has_whole_paths
// is set. Throws kIoError, and as load_config().
Config read_config(const std::filesystem::path& run);

class RunFiles {
 public:
  // resume: false: the directory is made; one that holds anything is refused (kInvalidInput).
  //   true: it must exist. Its config.yaml must say what `resolved` says, else kInvalidInput naming
  //   each key that differs with both values; one that was never begun is begun.
  // secret: the secret.key of the run that is executed again; else that of the directory.
  // Throws kMalformed if the trace was changed or shortened since it was sealed.
  // Throws kIoError if the directory cannot be written or another process holds it.
  RunFiles(std::filesystem::path directory, const Config& resolved, bool resume,
           const std::optional<std::filesystem::path>& secret = std::nullopt);
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  const std::filesystem::path& directory() const noexcept { return directory_; }
  // Of secret.key; of the public seed if the configuration is not secure.
  const random::Key& secret() const noexcept { return *secret_; }
  // Of an earlier process; none if the run was not begun.
  const std::optional<RunHeader>& header() const noexcept { return header_; }
  std::optional<Checkpoint> checkpoint(const random::Key& key, const Expected& expected) const;
  // Steps that were released after that position, of a checkpoint of step t: the `iter` lines after
  // it and those that are missing by trace.steps. Without that file, unless the trace ends with a
  // sealed run_end, all steps that were planned: lines may have been cut off (kInvalidInput if none
  // were planned).
  std::uint64_t steps_after(const TracePosition& at, std::uint64_t t) const;

  // The last signed note of the ledger that the run writes to: the seals to come hold it.
  void keep_ledger_note(std::string note) { ledger_note_ = std::move(note); }

  // Begins the trace, or goes on from `at` on the same bits (TraceWriter::reexecute).
  void begin_trace(const cbor::Value& header, const TracePosition& at);
  // Seals the beginning of the trace once more, with the note that came since.
  void seal_beginning() const { seal(trace_->position()); }
  // Goes on after steps that may be executed on other bits (TraceWriter::extend).
  void extend_trace(const TracePosition& at, const cbor::Value& resumed);

  void append(std::string_view kind, const cbor::Value& record);
  void flush() { trace_->flush(); }
  // The trace to the disk, then the checkpoint, which says where the trace is.
  void write_checkpoint(Checkpoint checkpoint, const random::Key& key);
  // The trace to the disk, then the model.
  void write_model(ByteView bytes);
  // Ends the trace: the line `run_end` with the SHA-256 of the model that write_model() wrote, then
  // the seal.
  void end(const cbor::Value& line);

  // Of a run that this process began and that released nothing: takes its files away again.
  void remove_if_new() noexcept;

 private:
  void open_config(const Config& resolved);
  void open_secret(const Config& resolved, const std::optional<std::filesystem::path>& elsewhere);
  void open_header();
  void require_seal() const;
  bool ends_sealed() const;
  void count_from(std::uint64_t steps);
  void seal(const TracePosition& position) const;
  std::filesystem::path at(const char* name) const { return directory_ / name; }

  std::filesystem::path directory_;
  bool new_ = false;  // this process made the run
  bool made_directory_ = false;
  int lock_ = -1;
  std::optional<random::Key> secret_;
  std::optional<RunHeader> header_;
  std::optional<TraceWriter> trace_;
  std::optional<Digest> model_;  // that this process wrote
  std::string ledger_note_;
  std::optional<std::uint64_t> planned_;
  std::unique_ptr<StepCount> count_;
  std::uint64_t steps_ = 0;    // `iter` lines up to where the trace is
  std::uint64_t counted_ = 0;  // what trace.steps says
  bool recount_ = false;       // missing lines are charged with the next checkpoint
};

// What two configurations say differently: "noise_multiplier was 1 and is 2; …"; empty if nothing.
std::string config_difference(const Config& before, const Config& now);

}  // namespace discreet::run
