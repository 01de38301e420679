#include "discreet/run/step_count.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/run/mac_impl.h"

namespace discreet::run {
namespace {

constexpr std::string_view kPrefix = "discreet-steps-1 ";
constexpr std::string_view kStream = "step count";

std::string text_of(std::uint64_t count, const random::Key& secret) {
  const std::string body = fmt::format("{}{:020} ", kPrefix, count);
  return body + to_hex(mac(bytes_of(body), secret, kStream)) + "\n";
}
constexpr std::size_t kLength = kPrefix.size() + 20 + 1 + 64 + 1;

// None if the line is damaged, or of another run.
std::optional<std::uint64_t> count_of(std::string_view line, const random::Key& secret) {
  std::uint64_t count = 0;
  if (line.size() > kPrefix.size())
    std::from_chars(line.data() + kPrefix.size(), line.data() + line.size(), count);
  const std::string expected = text_of(count, secret);
  if (line.size() != expected.size() ||
      CRYPTO_memcmp(line.data(), expected.data(), expected.size()) != 0)
    return std::nullopt;
  return count;
}

struct Counts {
  std::optional<std::uint64_t> lines[2];
  std::size_t size = 0;  // of the file
  int newer() const { return lines[1] && (!lines[0] || *lines[1] > *lines[0]) ? 1 : 0; }
};

Counts counts_in(const std::filesystem::path& file, const random::Key& secret) {
  const Bytes bytes = read_file(file, 4096);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Counts out;
  out.size = text.size();
  if (text.size() > 2 * kLength) return out;
  out.lines[0] = count_of(text.substr(0, kLength), secret);
  if (text.size() > kLength) out.lines[1] = count_of(text.substr(kLength), secret);
  return out;
}

const std::filesystem::path& created(const std::filesystem::path& file, const random::Key& secret,
                                     std::uint64_t count) {
  if (!std::filesystem::exists(std::filesystem::symlink_status(file)))
    write_new(file, bytes_of(text_of(count, secret)), Access::kOwner);
  return file;
}

}  // namespace

StepCount::StepCount(const std::filesystem::path& run, const random::Key& secret,
                     std::uint64_t count)
    : file_(created(run / kStepCountFile, secret, count), O_WRONLY | O_NOFOLLOW | O_NONBLOCK),
      key_(secret) {
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0) fail_on_file("read", run / kStepCountFile);
  if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
    io_error("run",
             "{} is a link, a device or a pipe instead of a regular file: remove it, or restore "
             "the original file",
             (run / kStepCountFile).string());
  const Counts there = counts_in(run / kStepCountFile, key_);
  line_ = there.lines[there.newer()] ? 1 - there.newer() : 0;
  other_ = there.lines[there.newer()].value_or(0);
}

void StepCount::write(std::uint64_t count) {
  const std::string text = text_of(count, key_);
  const auto put = [&] {
    const ssize_t written =
        ::pwrite(file_.number(), text.data(), text.size(), static_cast<off_t>(line_ * kLength));
    if (written != static_cast<ssize_t>(text.size())) fail_on_file("write", kStepCountFile);
    line_ = 1 - line_;
  };
  put();
  if (other_ > count) put();
  other_ = count;
}

std::optional<std::uint64_t> StepCount::read(const std::filesystem::path& run,
                                             const random::Key& secret) {
  if (!std::filesystem::exists(run / kStepCountFile)) return std::nullopt;
  const Counts there = counts_in(run / kStepCountFile, secret);
  const std::optional<std::uint64_t> newer = there.lines[there.newer()];
  if (!newer)
    malformed("run",
              "trace.steps was altered, or belongs to a run with another secret.key; restore the "
              "original file");
  const bool is_damaged = there.size > kLength && !there.lines[1 - there.newer()];
  return is_damaged ? *newer + 1 : *newer;
}

}  // namespace discreet::run
