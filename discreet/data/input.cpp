#include "discreet/data/input.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::data {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;
constexpr std::size_t kLongestLine = std::size_t{1} << 24;
// What may come out of a compressed file: so much for nothing, and then so many times its size.
// Tables compress by 3 to 30; a file that was made to fill memory by up to 1,032.
constexpr std::uint64_t kFreeBytes = std::uint64_t{1} << 26, kMostRatio = 200;

}  // namespace

struct Input::File {
  gzFile handle = nullptr;
  std::string pending;    // read, and not yet given out as lines
  std::size_t begin = 0;  // of what is pending
  bool ended = false;
  std::uint64_t most = 0;  // bytes that may come out
  std::uint64_t came = 0;
  ~File() {
    if (handle != nullptr) gzclose(handle);
  }
};

Input::Input(const std::filesystem::path& path) : path_(path), file_(std::make_unique<File>()) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) cannot_open(path, errno);
  if (S_ISDIR(status.st_mode)) cannot_open(path, EISDIR);
  errno = 0;
  file_->handle = gzopen(path.c_str(), "rb");
  if (file_->handle == nullptr) cannot_open(path, errno == 0 ? ENOMEM : errno);
  gzbuffer(file_->handle, kPiece);
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  // A pipe has no size.
  file_->most = S_ISREG(status.st_mode) ? kFreeBytes + kMostRatio * size : ~std::uint64_t{0};
}

Input::~Input() = default;
Input::Input(Input&&) noexcept = default;

std::size_t Input::read(std::span<char> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto want = static_cast<unsigned>(std::min<std::size_t>(out.size() - done, 1u << 30));
    const int got = gzread(file_->handle, out.data() + done, want);
    int code = Z_OK;
    const char* reason = gzerror(file_->handle, &code);
    if (got < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
      if (code == Z_ERRNO)
        io_error("data", "cannot read {}: {}", path_.string(),
                 std::generic_category().message(errno));
      malformed("data", "the compressed file {} is damaged or truncated ({})", path_.string(),
                reason);
    }
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    file_->came += static_cast<std::uint64_t>(got);
    if (file_->came > file_->most)
      malformed("data",
                "the compressed file {} unpacks to more than {} times its size; if that is "
                "intended, unpack it and use the result",
                path_.string(), kMostRatio);
  }
  return done;
}

bool Input::line(std::string_view& text) {
  File& file = *file_;
  std::size_t searched = file.begin;
  while (true) {
    const std::size_t end = file.pending.find('\n', searched);
    if (end != std::string::npos || (file.ended && file.begin < file.pending.size())) {
      const std::size_t stop = end == std::string::npos ? file.pending.size() : end;
      text = std::string_view(file.pending).substr(file.begin, stop - file.begin);
      if (text.ends_with('\r')) text.remove_suffix(1);
      file.begin = std::min(stop + 1, file.pending.size());
      ++line_number_;
      return true;
    }
    if (file.ended) return false;
    if (file.pending.size() - file.begin > kLongestLine)
      malformed("data", "{}:{}: the line has more than 16 MiB", path_.string(), line_number_ + 1);
    file.pending.erase(0, file.begin);
    file.begin = 0;
    searched = file.pending.size();
    file.pending.resize(searched + kPiece);
    const std::size_t got = read(std::span(file.pending).subspan(searched));
    file.ended = got < kPiece;
    file.pending.resize(searched + got);
  }
}

}  // namespace discreet::data
