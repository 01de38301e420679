#include "discreet/run/run_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_resolve.h"
#include "discreet/run/secret_key.h"
#include "discreet/run/step_count.h"
#include "discreet/run/trace_seal.h"

namespace discreet::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOperator = "run";

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// JSON of an environment back to the value that it was made from.
cbor::Value texts_of(const nlohmann::json& object) {
  std::vector<cbor::Entry> entries;
  for (const auto& [key, value] : object.items())
    entries.push_back({key, value.get<std::string>()});
  return cbor::map(std::move(entries));
}

std::uint64_t steps_in(std::span<const TraceLine> lines) {
  return static_cast<std::uint64_t>(std::ranges::count(lines, "iter", &TraceLine::kind));
}

// `iter` lines after a position of the trace.
std::uint64_t steps_in(const fs::path& trace, const TracePosition& after = {}) {
  return steps_in(trace_lines(trace, after));
}

}  // namespace

std::string config_difference(const Config& before, const Config& now) {
  const cbor::Value a = cbor::decode(canonical_bytes(before)).as_array().at(1);
  const cbor::Value b = cbor::decode(canonical_bytes(now)).as_array().at(1);
  constexpr std::string_view kPrivacy = "security.differential_privacy.";
  std::string out;
  const auto text = [](const cbor::Value* value) {
    return value == nullptr ? std::string("absent") : to_json(*value);
  };
  const auto add = [&](std::string_view key, const cbor::Value* was, const cbor::Value* is) {
    if (was != nullptr && is != nullptr && *was == *is) return;
    if (key.starts_with(kPrivacy)) key.remove_prefix(kPrivacy.size());
    out += fmt::format("{}{} was {} and is {}", out.empty() ? "" : "; ", key, text(was), text(is));
  };
  for (const auto& [key, value] : a.as_map()) add(key.as_text(), &value, b.find(key));
  for (const auto& [key, value] : b.as_map())
    if (a.find(key) == nullptr) add(key.as_text(), nullptr, &value);
  return out;
}

namespace {

fs::path normal_absolute(const fs::path& path) { return fs::absolute(path).lexically_normal(); }

// Whether a file has no folder in common with the run but the root, the first component of both.
bool is_apart(const std::optional<std::string>& file, const fs::path& directory) {
  if (!file || !fs::path(*file).is_absolute()) return false;
  const fs::path path = fs::path(*file).lexically_normal();
  return *std::next(path.begin()) != *std::next(normal_absolute(directory / "").begin());
}

// Where the files are that config.yaml names by their names alone, in the order of files_of(); null
// for the others. For the operator, so that RUN finds them again.
constexpr const char* kPlaces = "places.json";

void write_places(Config config, const fs::path& directory) {
  if (config.has_whole_paths) return;
  nlohmann::json places;
  bool any = false;
  for (const std::optional<std::string>* file : files_of(config)) {
    const bool apart = is_apart(*file, directory);
    places.push_back(apart ? nlohmann::json(**file) : nlohmann::json());
    any = any || apart;
  }
  if (any) write_atomically(directory / kPlaces, bytes_of(places.dump() + "\n"), Access::kOwner);
}

nlohmann::json read_places(const fs::path& directory) {
  if (!fs::exists(directory / kPlaces)) return nullptr;
  nlohmann::json places = read_json(text_of(read_file(directory / kPlaces, std::size_t{1} << 20)));
  Config any;
  if (!places.is_array() || places.size() != files_of(any).size() ||
      !std::ranges::all_of(places, [](const auto& x) { return x.is_null() || x.is_string(); }))
    malformed(kOperator,
              "{} is not a list of {} paths; delete it and put the files into the run's directory",
              (directory / kPlaces).string(), files_of(any).size());
  return places;
}

// As config.yaml names the files of a run in `directory`.
Config as_published(const Config& config, const fs::path& directory) {
  if (config.has_whole_paths) return config;
  Config out = config;
  const fs::path from = normal_absolute(directory / "");
  for (std::optional<std::string>* file : files_of(out)) {
    if (!*file || !fs::path(**file).is_absolute()) continue;
    const fs::path path = fs::path(**file).lexically_normal();
    *file = (is_apart(*file, directory) ? path.filename() : path.lexically_relative(from)).string();
  }
  out.corpus.ledger_key.reset();
  return out;
}

}  // namespace

Config read_config(const fs::path& run) {
  const fs::path path = run / "config.yaml";
  if (fs::is_directory(run) && !fs::exists(path))
    invalid_input(kOperator,
                  "'{}' is not a run: it has no config.yaml; give the folder named in --out",
                  run.string());
  const Bytes bytes = read_file(path, std::size_t{1} << 20);
  Config out = load_config(text_of(bytes), path.string()).config;
  const nlohmann::json places = read_places(run);
  std::size_t i = 0;
  for (std::optional<std::string>* file : files_of(out)) {
    const nlohmann::json place = places.is_null() ? nlohmann::json() : places[i];
    ++i;
    if (!*file) continue;
    if (fs::path(**file).is_absolute())
      out.has_whole_paths = true;
    else if (place.is_string() && !fs::exists(run / **file))
      *file = place.get<std::string>();
    else
      *file = normal_absolute(run / **file).string();
  }
  return out;
}

RunFiles::RunFiles(fs::path directory, const Config& resolved, bool resume,
                   const std::optional<fs::path>& secret)
    : directory_(std::move(directory)), planned_(resolved.privacy.target_steps) {
  std::error_code ignored;
  const bool exists = fs::exists(directory_, ignored);
  if (resume && !exists)
    invalid_input(kOperator, "{} does not exist, so there is nothing to resume; remove --resume",
                  directory_.string());
  if (!exists) {
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) io_error(kOperator, "cannot create {}: {}", directory_.string(), error.message());
    made_directory_ = true;
  }
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail_on_file("open", directory_);
  try {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_on_file("lock", directory_);
      io_error(kOperator, "another process is writing {}", directory_.string());
    }
    if (::access(directory_.c_str(), W_OK) != 0) fail_on_file("write in", directory_);
    const bool empty = fs::is_empty(directory_);
    if (!resume && !empty)
      invalid_input(
          kOperator,
          "{} already contains a run or other files; choose another directory, or continue "
          "the run with --resume (in Python: resume=True)",
          directory_.string());
    new_ = empty;
    // What a killed process was about to rename.
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".") && name.ends_with(".part")) fs::remove(entry.path());
    }
    open_config(resolved);
    open_secret(resolved, secret);
    require_seal(open_header());
  } catch (...) {
    remove_if_new();
    ::close(lock_);
    throw;
  }
}

RunFiles::~RunFiles() { ::close(lock_); }

void RunFiles::open_config(const Config& resolved) {
  const fs::path path = at("config.yaml");
  if (fs::exists(path)) {
    Config before = read_config(directory_), now = resolved;
    std::string differs = config_difference(before, now);
    for (std::size_t i = 0; differs.empty() && i < files_of(now).size(); ++i) {
      const auto &was = *files_of(before)[i], &is = *files_of(now)[i];
      const bool is_named_only =
          was && fs::path(*was).parent_path() == normal_absolute(directory_ / "x").parent_path();
      if (was && is && !is_named_only && normal_absolute(*is) != *was)
        differs = fmt::format("it started with {}, but this is {}", *was, *is);
    }
    if (!differs.empty())
      invalid_input(kOperator,
                    "{} is a run of another configuration: {}. A run must continue with the "
                    "configuration it started with; start another run in its own directory",
                    directory_.string(), differs);
    return;
  }
  if (fs::exists(at("trace.jsonl")))
    invalid_input(kOperator, "{} has a trace but no config.yaml: restore it, or start another run",
                  directory_.string());
  write_places(resolved, directory_);
  write_atomically(path, bytes_of(write_yaml(as_published(resolved, directory_))));
}

void RunFiles::open_secret(const Config& resolved, const std::optional<fs::path>& elsewhere) {
  if (!resolved.privacy.secure) {
    secret_ = random::Key::from_seed(resolved.privacy.seed);
    return;
  }
  if (elsewhere) {
    secret_ = load_secret(*elsewhere);
    return;
  }
  const fs::path path = at("secret.key");
  const bool traced = fs::exists(at("trace.jsonl"));
  if (!fs::exists(path)) {
    if (traced)
      invalid_input(
          kOperator,
          "{} has a trace but no secret.key, so its noise cannot be drawn again; start another run",
          directory_.string());
    secret_ = create_secret(path);
    return;
  }
  try {
    secret_ = load_own_secret(path);
  } catch (const Error& error) {
    // Killed while the key was written: without a trace it was never used.
    if (error.code() != ErrorCode::kMalformed || traced || fs::file_size(path) > 0) throw;
    fs::remove(path);
    secret_ = create_secret(path);
  }
}

std::vector<TraceLine> RunFiles::open_header() {
  const fs::path path = at("trace.jsonl");
  std::vector<TraceLine> lines;
  if (fs::exists(path)) lines = trace_lines(path);
  if (lines.empty()) {
    // The header is on the disk before anything else is released.
    if (fs::exists(at("model.safetensors")) || fs::exists(at("checkpoint.cbor")))
      invalid_input(kOperator,
                    "{} has a model or a checkpoint but no trace, so its releases are unknown; "
                    "restore the trace, or start another run",
                    directory_.string());
    return lines;
  }
  try {
    const nlohmann::json line = read_json(lines[0].text);
    header_ = RunHeader{line.at("specification"),   line.at("config_hash"),
                        line.at("layout_hash"),     line.at("data_commitment"),
                        line.at("noise_generator"), texts_of(line.at("environment"))};
    if (line.contains("corpus")) {
      header_->admitted = line.at("corpus").at("admitted").get<std::uint64_t>();
      if (line.at("corpus").contains("admitted_hash"))
        header_->admitted_hash = line.at("corpus").at("admitted_hash").get<std::string>();
    }
  } catch (const nlohmann::json::exception& error) {
    malformed("trace", "line 1 is not the header of a training run: {}", error.what());
  }
  return lines;
}

// What lies between the checkpoint and the end is counted by its lines: none may be missing.
void RunFiles::require_seal(std::span<const TraceLine> trace) const {
  if (!fs::exists(at(kSealFile))) return;  // of an earlier version, or killed before it
  if (!header_)
    invalid_input(kOperator,
                  "{} has a seal but no trace, so its releases are unknown; restore the trace, or "
                  "start another run",
                  directory_.string());
  static_cast<void>(open_seal(directory_, *secret_, trace));
}

std::optional<Checkpoint> RunFiles::checkpoint(const random::Key& key,
                                               const Expected& expected) const {
  const fs::path path = at("checkpoint.cbor");
  if (!fs::exists(path)) return std::nullopt;
  if (!header_)
    invalid_input(
        kOperator,
        "{} has a checkpoint but no trace, so its releases are unknown; start another run",
        directory_.string());
  return read_checkpoint(path, key, expected);
}

bool RunFiles::ends_sealed(std::span<const TraceLine> trace) const {
  if (trace.empty() || trace.back().kind != "run_end") return false;
  const std::optional<Seal> seal = open_seal(directory_, *secret_, trace);
  return seal && seal->at.lines == trace.size();
}

std::uint64_t RunFiles::steps_after(const TracePosition& position, std::uint64_t t) const {
  // Read once: what is counted after the position and in all must be of one trace.
  const std::vector<TraceLine> trace = trace_lines(at("trace.jsonl"));
  if (!pass_through(trace, position))
    malformed("trace", "line {} is not where the checkpoint was written", position.lines);
  const std::uint64_t after = steps_in(std::span(trace).subspan(position.lines));
  // Steps are counted for a trace with a sealed end too, because the end of an earlier interruption
  // may have been restored.
  if (const auto counted = StepCount::read(directory_, *secret_)) {
    const std::uint64_t all = steps_in(trace);
    return after + std::max(*counted, all) - all;
  }
  if (ends_sealed(trace)) return after;
  if (!planned_)
    invalid_input(kOperator,
                  "{} has no trace.steps, so the steps since the last checkpoint are unknown; "
                  "restore it, or start another run",
                  directory_.string());
  return std::max(after, std::max(*planned_, t) - t);
}

// Before the trace changes.
void RunFiles::count_from(std::uint64_t steps) {
  steps_ = steps;
  counted_ = std::max(fs::exists(at("trace.jsonl")) ? steps_in(at("trace.jsonl")) : 0,
                      header_ ? StepCount::read(directory_, *secret_).value_or(0) : 0);
  count_ = std::make_unique<StepCount>(directory_, *secret_, counted_);
  count_->write(counted_);
}

void RunFiles::append(std::string_view kind, const cbor::Value& record) {
  require_place();
  if (!count_) count_from(steps_);  // a run that continues after its end
  trace_->append(kind, record);
  if (kind != "iter" || ++steps_ <= counted_) return;
  counted_ = steps_;
  count_->write(counted_);
}

// The lock is on the directory, but files are written by name: another run may have the name now.
void RunFiles::require_place() const {
  struct stat locked {
  }, named{};
  if (::fstat(lock_, &locked) == 0 && ::stat(directory_.c_str(), &named) == 0 &&
      locked.st_dev == named.st_dev && locked.st_ino == named.st_ino)
    return;
  io_error(
      kOperator,
      "{} was moved or replaced while the run wrote into it; nothing more was written. Move it "
      "back and continue with --resume",
      directory_.string());
}

void RunFiles::seal(const TracePosition& position) const {
  require_place();
  write_seal(directory_, {position, ledger_note_}, *secret_);
}

void RunFiles::begin_trace(const cbor::Value& header, const TracePosition& position) {
  const fs::path path = at("trace.jsonl");
  count_from(position.lines == 0 ? 0 : steps_in(path) - steps_in(path, position));
  if (!fs::exists(path)) {
    trace_.emplace(TraceWriter::create(path, header));
    seal(trace_->position());
    return;
  }
  // Before lines are removed: the seal must never cover more lines than exist.
  if (position.lines != 0)
    seal(position);
  else
    fs::remove(at(kSealFile));
  trace_.emplace(TraceWriter::reexecute(path, position));
  if (position.lines == 0) {
    trace_->append("run_header", header);
    seal(trace_->position());
  }
  trace_->flush();
}

void RunFiles::extend_trace(const TracePosition& position, const cbor::Value& resumed) {
  count_from(steps_in(at("trace.jsonl")));
  recount_ = counted_ != steps_;
  trace_.emplace(TraceWriter::extend(at("trace.jsonl"), position, resumed));
  seal(trace_->position());
}

void RunFiles::write_checkpoint(Checkpoint checkpoint, const random::Key& key) {
  require_place();
  trace_->flush();
  checkpoint.trace = trace_->position();
  run::write_checkpoint(at("checkpoint.cbor"), checkpoint, key);
  if (!std::exchange(recount_, false)) return;
  counted_ = steps_;
  count_->write(counted_);
}

void RunFiles::write_model(ByteView bytes) {
  require_place();
  trace_->flush();
  write_atomically(at("model.safetensors"), bytes);
  model_ = sha256(bytes);
}

void RunFiles::end(const cbor::Value& line) {
  std::vector<cbor::Entry> entries = line.as_map();
  entries.push_back({"model_sha256", model_ ? cbor::Value(ByteView(*model_)) : nullptr});
  trace_->append("run_end", cbor::map(std::move(entries)));
  trace_->flush();
  seal(trace_->position());
  count_.reset();
  fs::remove(at(kStepCountFile));
}

void RunFiles::remove_if_new() noexcept try {
  if (!new_) return;
  require_place();
  trace_.reset();
  count_.reset();
  std::error_code ignored;
  for (const char* name : {"trace.seal", "trace.steps", "trace.jsonl", "secret.key", "config.yaml",
                           kPlaces, "checkpoint.cbor"})
    fs::remove(at(name), ignored);
  if (made_directory_) fs::remove(directory_, ignored);
} catch (const std::exception&) {  // then they stay, as after a kill
}

}  // namespace discreet::run
