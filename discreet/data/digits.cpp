#include "discreet/data/digits.h"

#include <zlib.h>

#include <span>
#include <string>

#include "discreet/base/error.h"
#include "discreet/data/dataset_impl.h"

namespace discreet::data {

// digits.csv.gz, in a source file that the build writes.
extern const std::span<const unsigned char> kDigitsFile;

namespace {

constexpr std::size_t kTrain = 1437;
constexpr std::size_t kTest = 360;
constexpr std::size_t kSide = 8;
constexpr std::size_t kPixels = kSide * kSide;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

[[noreturn]] void damaged() { malformed("data", "the embedded digits are damaged; build again"); }

std::string unpacked() {
  std::string text(kMostBytes, '\0');
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzip) != Z_OK) damaged();
  stream.next_in = const_cast<Bytef*>(kDigitsFile.data());
  stream.avail_in = static_cast<uInt>(kDigitsFile.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int code = inflate(&stream, Z_FINISH);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  if (code != Z_STREAM_END) damaged();
  return text;
}

Dataset empty() {
  Dataset out;
  out.features = kPixels;
  out.height = out.width = kSide;
  out.classes = 10;
  name_features(out);
  return out;
}

}  // namespace

Digits read_digits() {
  Digits out{empty(), empty()};
  Dataset* into = &out.train;
  std::size_t row = 0, field = 0;
  unsigned number = 0;
  for (const char c : unpacked()) {
    if (c >= '0' && c <= '9') {
      number = number * 10 + static_cast<unsigned>(c - '0');
      continue;
    }
    if (c == '\r') continue;
    if (c != ',' && c != '\n') damaged();
    if (field < kPixels) {
      if (number > 16) damaged();
      into->x.push_back(static_cast<float>(number) / 16.0f);
    } else {
      if (number > 9) damaged();
      into->label.push_back(number);
    }
    number = 0;
    ++field;
    if (c != '\n') continue;
    if (field != kPixels + 1) damaged();
    field = 0;
    ++into->rows;
    into = ++row % 5 == 1 ? &out.test : &out.train;
  }
  if (out.train.rows != kTrain || out.test.rows != kTest) damaged();
  for (Dataset* part : {&out.train, &out.test}) part->digest = digest_of(*part);
  return out;
}

}  // namespace discreet::data
