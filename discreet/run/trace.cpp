#include "discreet/run/trace.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/base/file_descriptor.h"
#include "discreet/base/files.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"

namespace discreet::run {
namespace {

[[noreturn]] void refuse_line(std::uint64_t number, const std::string& what) {
  malformed("trace", "line {} {}", number, what);
}

std::string line_of(std::string_view kind, const cbor::Value& record, const Digest& prev) {
  std::vector<cbor::Entry> entries = record.as_map();
  if (kind == "run_header") entries.push_back({"confidential", true});
  entries.push_back({"kind", kind});
  entries.push_back({"prev", to_hex(prev)});
  return to_json(cbor::map(std::move(entries)));
}

// Follows one line of a trace; its kind.
std::string follow(std::string_view line, TracePosition& position) {
  const std::uint64_t number = position.lines + 1;
  const nlohmann::json object = try_read_json(line);
  if (object.is_discarded() || !object.is_object()) refuse_line(number, "is not a JSON object");
  const auto text = [&](const char* key) -> std::string {
    const auto at = object.find(key);
    if (at == object.end() || !at->is_string()) refuse_line(number, fmt::format("has no {}", key));
    return at->get<std::string>();
  };
  if (text("prev") != to_hex(position.head))
    refuse_line(number,
                "does not follow from the previous line: one of the two was changed, or a line "
                "between them was removed");
  std::string kind = text("kind");
  if ((kind == "run_header") != (number == 1))
    refuse_line(number, number == 1 ? "is not a run_header" : "is a second run_header");
  position.head = sha256(bytes_of(line));
  position.bytes += line.size() + 1;
  ++position.lines;
  return kind;
}

struct Reading {
  TracePosition position;
  std::uint64_t lines_beyond = 0;
};

// Follows the lines of `text`, at most `bytes` of them.
Reading follow_all(std::string_view text, std::uint64_t bytes) {
  Reading out;
  while (out.position.bytes < bytes) {
    const std::string_view rest = text.substr(out.position.bytes);
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos)
      refuse_line(out.position.lines + 1, "is truncated: the trace ends without a newline");
    follow(rest.substr(0, end), out.position);
  }
  const std::string_view beyond = text.substr(std::min<std::size_t>(bytes, text.size()));
  out.lines_beyond = static_cast<std::uint64_t>(std::ranges::count(beyond, '\n')) +
                     (!beyond.empty() && beyond.back() != '\n' ? 1 : 0);
  return out;
}

// What is verified is what is then shortened and written: one descriptor, and no link.
Descriptor open_to_go_on(const std::filesystem::path& path) {
  Descriptor file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_on_file("read", path);
  if (!S_ISREG(status.st_mode))
    io_error("trace", "{} is not a file: restore the original one", path.string());
  return file;
}

Bytes read_all(const Descriptor& file, const std::filesystem::path& path) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  Bytes out;
  while (true) {
    const std::size_t have = out.size();
    out.resize(have + kPiece);
    const ssize_t got = ::pread(file.number(), out.data() + have, kPiece, static_cast<off_t>(have));
    if (got < 0 && errno != EINTR) fail_on_file("read", path);
    out.resize(have + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return out;
  }
}

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

struct TraceWriter::File {
  Descriptor descriptor;
};

TraceWriter::TraceWriter(std::unique_ptr<File> file) : file_(std::move(file)) {}
TraceWriter::~TraceWriter() = default;
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;

TraceWriter TraceWriter::create(const std::filesystem::path& path, const cbor::Value& header) {
  TraceWriter writer(
      std::make_unique<File>(File{Descriptor(path, O_WRONLY | O_CREAT | O_EXCL, 0600)}));
  try {
    writer.append("run_header", header);
    writer.flush();
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  return writer;
}

TraceWriter TraceWriter::resume(const std::filesystem::path& path, const TracePosition& at) {
  Descriptor file = open_to_go_on(path);
  const Bytes bytes = read_all(file, path);
  if (bytes.size() < at.bytes)
    malformed("trace", "{} has {} bytes, but the checkpoint recorded {}", path.string(),
              bytes.size(), at.bytes);
  const Reading reading = follow_all(text_of(bytes), at.bytes);
  if (!(reading.position == at))
    refuse_line(reading.position.lines, "is not where the checkpoint was written");
  TraceWriter writer(std::make_unique<File>(File{std::move(file)}));
  writer.file_->descriptor.truncate(at.bytes);
  writer.file_->descriptor.seek_end();
  writer.position_ = at;
  writer.append("resumed", cbor::map({{"dropped_lines", reading.lines_beyond}}));
  writer.flush();
  return writer;
}

namespace {

// The text of a trace of which `at` is a position.
struct Passing {
  std::string text;               // whole lines
  std::vector<TraceLine> beyond;  // those after `at`
  TracePosition end;
};

Passing passing(const Bytes& bytes, const std::filesystem::path& path, const TracePosition& at) {
  std::string_view text = text_of(bytes);
  text = text.substr(0, text.rfind('\n') + 1);  // npos + 1 is 0
  if (text.size() < at.bytes)
    malformed("trace", "{} has {} bytes, but the checkpoint recorded {}", path.string(),
              bytes.size(), at.bytes);
  Passing out{std::string(text), {}, follow_all(text, at.bytes).position};
  if (!(out.end == at)) refuse_line(out.end.lines, "is not where the checkpoint was written");
  while (out.end.bytes < text.size()) {
    const std::string_view rest = text.substr(out.end.bytes);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    out.beyond.push_back({follow(line, out.end), std::string(line)});
  }
  return out;
}

// Earlier versions wrote no digest of the model: such an end is written again with it.
bool only_says_how_it_stopped(const TraceLine& line) {
  if (line.kind == "resumed") return true;
  if (line.kind != "run_end") return false;
  const nlohmann::json end = read_json(line.text);
  return end.value("ended", "") == "interrupted" || !end.contains("model_sha256");
}

}  // namespace

TraceWriter TraceWriter::reexecute(const std::filesystem::path& path, const TracePosition& at) {
  Descriptor file = open_to_go_on(path);
  Passing found = passing(read_all(file, path), path, at);
  while (!found.beyond.empty() && only_says_how_it_stopped(found.beyond.back())) {
    found.text.resize(found.text.size() - found.beyond.back().text.size() - 1);
    found.beyond.pop_back();
  }
  TraceWriter writer(std::make_unique<File>(File{std::move(file)}));
  writer.file_->descriptor.truncate(found.text.size());
  writer.file_->descriptor.seek_end();
  writer.position_ = at;
  writer.again_ = found.text.substr(at.bytes);
  return writer;
}

TraceWriter TraceWriter::extend(const std::filesystem::path& path, const TracePosition& at,
                                const cbor::Value& resumed) {
  Descriptor file = open_to_go_on(path);
  const Passing found = passing(read_all(file, path), path, at);
  TraceWriter writer(std::make_unique<File>(File{std::move(file)}));
  writer.file_->descriptor.truncate(found.text.size());
  writer.file_->descriptor.seek_end();
  writer.position_ = found.end;
  writer.append("resumed", resumed);
  writer.flush();
  return writer;
}

std::vector<TraceLine> trace_lines(const std::filesystem::path& path, const TracePosition& from) {
  return passing(read_file(path, std::size_t{1} << 36), path, from).beyond;
}

bool pass_through(std::span<const TraceLine> lines, const TracePosition& at) {
  if (lines.size() < at.lines) return false;
  TracePosition reached;
  for (; reached.lines < at.lines; ++reached.lines)
    reached.bytes += lines[reached.lines].text.size() + 1;
  if (reached.lines > 0) reached.head = sha256(bytes_of(lines[reached.lines - 1].text));
  return reached == at;
}

void TraceWriter::append(std::string_view kind, const cbor::Value& record) {
  std::string line = line_of(kind, record, position_.head);
  const Digest head = sha256(bytes_of(line));
  line += '\n';
  if (!again_.empty()) {
    const std::string before = again_.substr(0, again_.find('\n') + 1);
    if (before != line)
      refuse_line(position_.lines + 1,
                  fmt::format("was not repeated when its step was executed again: {}",
                              difference(before, line)));
    again_.erase(0, before.size());
    position_ = {position_.bytes + line.size(), position_.lines + 1, head};
    return;
  }
  try {
    file_->descriptor.write(bytes_of(line));
  } catch (const Error&) {
    file_->descriptor.truncate(position_.bytes);
    file_->descriptor.seek_end();
    throw;
  }
  position_ = {position_.bytes + line.size(), position_.lines + 1, head};
}

void TraceWriter::flush() { file_->descriptor.flush(); }

std::string difference(std::string_view before, std::string_view now) {
  if (before == now) return {};
  const nlohmann::json a = try_read_json(before);
  const nlohmann::json b = try_read_json(now);
  if (a.is_object() && b.is_object()) {
    const auto text = [](const nlohmann::json& line, const std::string& key) {
      return line.contains(key) ? line[key].dump() : "absent";
    };
    for (const auto& [key, value] : a.items())
      if (key != "prev" && text(a, key) != text(b, key))
        return fmt::format("{} was {} and is {}", key, text(a, key), text(b, key));
    for (const auto& [key, value] : b.items())
      if (!a.contains(key)) return fmt::format("{} was absent and is {}", key, value.dump());
    return {};
  }
  return "the text differs";
}

TracePosition verify_trace(const std::filesystem::path& path, const std::optional<Digest>& head) {
  const Bytes bytes = read_file(path, std::size_t{1} << 36);
  if (bytes.empty()) refuse_line(1, "is missing: the trace is empty");
  const TracePosition position = follow_all(text_of(bytes), bytes.size()).position;
  if (head && position.head != *head)
    refuse_line(position.lines,
                fmt::format("is not the expected last line: its digest is {}, expected {}",
                            to_hex(position.head), to_hex(*head)));
  return position;
}

}  // namespace discreet::run
