// Properties of the readers of data and models in discreet/training, whatever the bytes. The first
// byte chooses what they are:
//   csv, gzip    plain; packed here; or as they are, so that the gzip format itself is searched
//   idx, npy     images or features; labels
//   safetensors  decode throws kMalformed, or its tensors hold as many numbers as their shapes say
// Every reader throws kMalformed or kInvalidDpConfig, or gives records that are within bounds.
#include <zlib.h>

#include <cmath>

#include "discreet/data/dataset.h"
#include "discreet/training/safetensors.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;
using namespace discreet::data;
using namespace discreet::training;

namespace {

enum Parser : std::uint8_t {
  kCsv,
  kPacked,
  kGzip,
  kIdx,
  kIdxLabels,
  kNpy,
  kNpyLabels,
  kSafetensors,
  kParsers
};

Bytes gzip(ByteView bytes) {
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, bytes.size()) + 32);
  stream.next_in = const_cast<std::uint8_t*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<unsigned>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

CsvSchema schema() {
  CsvSchema s;
  s.numeric = {{"x", {-4, 4}}, {"y", {0, 1}}};
  s.categorical = {{"colour", {.vocabulary = {"red", "green, or blue"}, .other = true}}};
  s.label = {.name = "class", .classes = {"left", "right"}};
  return s;
}

// The same columns of a file without a header line, as tolerant as can be.
CsvSchema tolerant_schema() {
  CsvSchema s = schema();
  s.categorical.clear();
  s.hashed = {{"colour", 3}};
  s.format = {',', true, {"x", "y", "colour", "class"}, {{"class", {{"l", "left"}}}}, {"", "?"}};
  return s;
}

void require_sound(const Dataset& data, std::size_t bytes) {
  fuzz::require(data.x.size() == data.rows * data.features, "the features are not rows x columns");
  fuzz::require(data.label.empty() || data.label.size() == data.rows, "labels do not fit rows");
  // A record takes at least a byte; unpacked, 200 times the file or 64 MiB.
  fuzz::require(data.rows <= (std::size_t{64} << 20) + 200 * bytes, "more rows than bytes");
  for (const float x : data.x) fuzz::require(std::abs(x) <= 1, "a feature is out of bounds");
  for (const std::uint32_t label : data.label)
    fuzz::require(label < data.classes, "a label is no class");
}

std::string npy(const std::string& header, const std::string& body) {
  std::string out = "\x93NUMPY\x01";
  out += '\0';
  out += static_cast<char>(header.size());
  out += '\0';
  return out + header + body;
}

const std::string kImages(
    "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02\x01\x02\x03\x04\x05\x06\x07\xff", 24);
const std::string kLabels("\0\0\x08\x01\0\0\0\x02\0\x01", 10);
const std::string kFeatures = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n",
                                  std::string("\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x80\xbf", 16));
const std::string kFeatureLabels =
    npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", std::string("\0\x01", 2));

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  const std::string csv =
      "x,colour,class,y,ignored\n1.5,red,left,0.5,\n-3,\"green, or blue\",right,1,\"a "
      "\"\"b\"\"\"\r\n"
      "4e0,other,left,0,z\n";
  const std::string header =
      R"({"__metadata__":{"features":"[\"x\"]"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  std::string model;
  for (int i = 0; i < 8; ++i) model += static_cast<char>(header.size() >> 8 * i);
  model += header + std::string(8, '\x3f');
  return {seed(kCsv, csv),
          seed(kPacked, csv),
          seed(kGzip, gzip(bytes_of(csv))),
          seed(kIdx, kImages),
          seed(kIdxLabels, kLabels),
          seed(kNpy, kFeatures),
          seed(kNpy, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}\n",
                         std::string(16, '\x01'))),
          seed(kNpyLabels, kFeatureLabels),
          seed(kSafetensors, model)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const fuzz::File file("data"), other("other");
  const ByteView bytes(data + 1, size - 1);
  const auto bad = {ErrorCode::kMalformed, ErrorCode::kInvalidDpConfig};
  const auto put = [](ByteView of_file, std::string_view of_other) {
    file.put(of_file);
    other.put(bytes_of(of_other));
  };
  switch (data[0] % kParsers) {
    case kCsv:
    case kPacked:
    case kGzip:
      file.put(data[0] % kParsers == kPacked ? ByteView(gzip(bytes)) : bytes);
      for (const CsvSchema& own : {schema(), tolerant_schema()})
        for (const BadRow on_bad : {BadRow::kRefuse, BadRow::kSkip})
          fuzz::throws_only(bad, [&] { require_sound(read_csv(file.path(), own, on_bad), size); });
      break;
    case kIdx:
      put(bytes, kLabels);
      fuzz::throws_only(bad, [&] { require_sound(read_idx(file.path(), other.path(), 2), size); });
      break;
    case kIdxLabels:
      put(bytes, kImages);
      fuzz::throws_only(bad, [&] { require_sound(read_idx(other.path(), file.path(), 2), size); });
      break;
    case kNpy:
      put(bytes, kFeatureLabels);
      fuzz::throws_only(bad, [&] {
        require_sound(read_npy(file.path(), {-4, 4}, other.path(), 2, BadRow::kSkip), size);
      });
      break;
    case kNpyLabels:
      put(bytes, kFeatures);
      fuzz::throws_only(bad, [&] {
        require_sound(read_npy(other.path(), {-4, 4}, file.path(), 2), size);
      });
      break;
    default:
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        for (const NamedTensor& tensor : decode_safetensors(bytes)) {
          std::uint64_t numbers = 1;
          for (const std::uint64_t n : tensor.shape) numbers *= n;
          fuzz::require(tensor.values.size() == numbers, "a tensor has another shape");
        }
        safetensors_metadata(bytes);
      });
  }
  return 0;
}
