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

}  // namespace

StepCount::StepCount(const std::filesystem::path& run, const random::Key& secret)
    : file_(run / kStepCountFile, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600),
      key_(secret) {
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0) fail_on_file("read", run / kStepCountFile);
  if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
    throw Error(ErrorCode::kIoError, "run",
                fmt::format("{} is not a file of its own, but a link, a device or a pipe: remove "
                            "it, or put the original file back",
                            (run / kStepCountFile).string()));
}

void StepCount::write(std::uint64_t count) {
  const std::string text = text_of(count, key_);
  const ssize_t written = ::pwrite(file_.number(), text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size())) fail_on_file("write", kStepCountFile);
}

std::optional<std::uint64_t> StepCount::read(const std::filesystem::path& run,
                                             const random::Key& secret) {
  if (!std::filesystem::exists(run / kStepCountFile)) return std::nullopt;
  const Bytes bytes = read_file(run / kStepCountFile, 4096);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::uint64_t count = 0;
  if (text.size() > kPrefix.size())
    std::from_chars(text.data() + kPrefix.size(), text.data() + text.size(), count);
  const std::string expected = text_of(count, secret);
  if (text.size() != expected.size() ||
      CRYPTO_memcmp(text.data(), expected.data(), expected.size()) != 0)
    throw Error(ErrorCode::kMalformed, "run",
                "trace.steps was altered, or belongs to a run with another secret.key; restore the "
                "original file");
  return count;
}

}  // namespace discreet::run
