// IDX and NumPy arrays.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"
#include "discreet/data/dataset.h"
#include "discreet/data/dataset_impl.h"
#include "discreet/data/input.h"

namespace discreet::data {
namespace {

[[noreturn]] void bad_array(const Input& input, const std::string& what) {
  malformed("data", "{}: {}", input.path().string(), what);
}

void read_exactly(Input& input, std::span<char> out) {
  const std::size_t got = input.read(out);
  if (got != out.size())
    bad_array(input, fmt::format("the file is truncated by {} bytes", out.size() - got));
}

void require_end(Input& input) {
  char more = 0;
  if (input.read(std::span(&more, 1)) != 0) bad_array(input, "bytes follow the array");
}

void check_classes(std::size_t classes) {
  if (classes >= 2) return;
  invalid_config("data", "{} classes are declared; a classifier needs at least 2", classes);
}

std::uint32_t big_endian(Input& input) {
  std::array<char, 4> bytes{};
  read_exactly(input, bytes);
  std::uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// The product of sizes from a header, which may be anything.
std::size_t product(const Input& input, std::initializer_list<std::size_t> sizes) {
  std::size_t out = 1;
  for (const std::size_t n : sizes)
    if (__builtin_mul_overflow(out, n, &out)) bad_array(input, "its shape is too large");
  return out;
}

void check_width(const Input& input, std::size_t features) {
  if (features == 0) bad_array(input, "its records have no features");
  if (features > kMostFeatures)
    bad_array(input, fmt::format("its records have {} features; at most {} are supported", features,
                                 kMostFeatures));
}

// The dimensions of an IDX file of unsigned bytes.
std::vector<std::size_t> idx_shape(Input& input, unsigned dimensions) {
  const std::uint32_t magic = big_endian(input);
  if (magic != (0x0800u | dimensions))
    bad_array(input, fmt::format("its magic number is {:#010x}; expected {:#010x}, an IDX file of "
                                 "unsigned bytes in {} dimensions",
                                 magic, 0x0800u | dimensions, dimensions));
  std::vector<std::size_t> shape;
  for (unsigned d = 0; d < dimensions; ++d) shape.push_back(big_endian(input));
  return shape;
}

// Rows of bytes, a piece at a time, so that the file is never held whole.
template <class F>
void for_each_piece(Input& input, std::size_t bytes, std::size_t unit, F&& f) {
  std::vector<char> piece(std::max<std::size_t>(1, (std::size_t{1} << 20) / unit) * unit);
  while (bytes > 0) {
    const auto now = std::span(piece).first(std::min(bytes, piece.size()));
    read_exactly(input, now);
    f(now);
    bytes -= now.size();
  }
  require_end(input);
}

struct NpyHeader {
  std::string type;  // "<f4"
  std::vector<std::size_t> shape;
};

// The value of a key in the header's dictionary, up to the next comma outside parentheses.
std::string npy_value(const Input& input, const std::string& header, const std::string& key) {
  const std::size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) bad_array(input, fmt::format("its header has no {}", key));
  std::size_t begin = header.find(':', at) + 1;
  while (begin < header.size() && header[begin] == ' ') ++begin;
  if (begin == header.size()) bad_array(input, fmt::format("its header has no {}", key));
  const std::size_t end = header[begin] == '('
                              ? header.find(')', begin) + 1
                              : std::min(header.find(',', begin), header.find('}', begin));
  return header.substr(begin, end - begin);
}

// "(5,)", "(3, 4)": nothing but whole numbers, commas and spaces between parentheses.
std::vector<std::size_t> npy_shape(const Input& input, const std::string& text) {
  const auto bad_shape = [&] { bad_array(input, fmt::format("its shape is {}", excerpt(text))); };
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') bad_shape();
  std::vector<std::size_t> shape;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size() - 1;
  while (at != end) {
    std::size_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number > (std::size_t{1} << 50)) bad_shape();
    shape.push_back(number);
    at = rest;
    if (at == end) break;
    if (*at++ != ',') bad_shape();
    while (at != end && *at == ' ') ++at;
  }
  return shape;
}

NpyHeader npy_header(Input& input) {
  std::array<char, 8> start{};
  read_exactly(input, start);
  if (std::memcmp(start.data(), "\x93NUMPY", 6) != 0 || (start[6] != 1 && start[6] != 2))
    bad_array(input, "it is not a .npy file of version 1 or 2");
  std::array<unsigned char, 4> size{};
  read_exactly(input, std::span(reinterpret_cast<char*>(size.data()), start[6] == 1 ? 2 : 4));
  const std::size_t length =
      size[0] | size[1] << 8 | size[2] << 16 | static_cast<std::size_t>(size[3]) << 24;
  if (length > 65536) bad_array(input, fmt::format("its header has {} bytes", length));
  std::string header(length, '\0');
  read_exactly(input, header);
  if (npy_value(input, header, "fortran_order") != "False")
    bad_array(input, "it is in Fortran order; save it with numpy.ascontiguousarray");
  NpyHeader out;
  out.type = npy_value(input, header, "descr");
  std::erase(out.type, '\'');
  out.shape = npy_shape(input, npy_value(input, header, "shape"));
  return out;
}

template <class T>
T little_endian(const char* bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

double npy_number(const std::string& type, const char* bytes) {
  if (type == "<f4") return little_endian<float>(bytes);
  if (type == "<f8") return little_endian<double>(bytes);
  if (type == "|u1") return little_endian<std::uint8_t>(bytes);
  if (type == "<i4") return little_endian<std::int32_t>(bytes);
  return static_cast<double>(little_endian<std::int64_t>(bytes));
}

std::size_t npy_size(const Input& input, const std::string& type,
                     std::initializer_list<const char*> taken) {
  for (const char* one : taken)
    if (type == one) return static_cast<std::size_t>(type[2] - '0');
  bad_array(input, fmt::format("its type {} is not supported; expected one of {}", excerpt(type),
                               fmt::join(taken.begin(), taken.end(), ", ")));
}

std::vector<std::uint32_t> read_npy_labels(const std::filesystem::path& path, std::size_t classes) {
  Input input(path);
  const NpyHeader header = npy_header(input);
  const std::size_t width = npy_size(input, header.type, {"<i8", "<i4", "|u1"});
  if (header.shape.size() != 1)
    bad_array(input, fmt::format("labels must have 1 dimension, found {}", header.shape.size()));
  std::vector<std::uint32_t> out;  // grows with what is really there
  for_each_piece(
      input, product(input, {header.shape[0], width}), width, [&](std::span<const char> piece) {
        for (std::size_t at = 0; at < piece.size(); at += width) {
          const double value = npy_number(header.type, piece.data() + at);
          if (!(value >= 0 && value < static_cast<double>(classes)))
            bad_array(input, fmt::format("label {} of row {} is not one of the {} classes", value,
                                         out.size(), classes));
          out.push_back(static_cast<std::uint32_t>(value));
        }
      });
  return out;
}

}  // namespace

Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                 std::size_t classes) {
  check_classes(classes);
  Input pictures(images);
  std::optional<Input> answers;
  if (!labels.empty()) answers.emplace(labels);
  const auto shape = idx_shape(pictures, 3);
  if (answers)
    if (const auto count = idx_shape(*answers, 1); count[0] != shape[0])
      bad_array(*answers, fmt::format("found {} labels for {} images", count[0], shape[0]));
  Dataset out;
  out.rows = shape[0];
  out.height = shape[1];
  out.width = shape[2];
  out.features = product(pictures, {out.height, out.width});
  check_width(pictures, out.features);
  out.classes = classes;
  for_each_piece(pictures, product(pictures, {out.rows, out.features}), 1,
                 [&](std::span<const char> piece) {
                   // Grows with what is really there: a header that promises more costs nothing.
                   for (const char byte : piece)
                     out.x.push_back(static_cast<float>(static_cast<unsigned char>(byte)) / 255.0f);
                 });
  const auto take_labels = [&](std::span<const char> piece) {
    for (const char byte : piece) {
      const auto label = static_cast<unsigned char>(byte);
      if (label >= classes)
        bad_array(*answers, fmt::format("label {} of row {} is not one of the {} classes", label,
                                        out.label.size(), classes));
      out.label.push_back(label);
    }
  };
  if (answers) for_each_piece(*answers, out.rows, 1, take_labels);
  name_features(out);
  out.digest = digest_of(out);
  return out;
}

Dataset read_npy(const std::filesystem::path& features, const NumericColumn& bounds,
                 const std::filesystem::path& labels, std::size_t classes, BadRow on_bad_row) {
  check_classes(classes);
  check_bounds(bounds, "the features");
  const bool labelled = !labels.empty();
  std::vector<std::uint32_t> all_labels;
  if (labelled) all_labels = read_npy_labels(labels, classes);
  Input input(features);
  const NpyHeader header = npy_header(input);
  const std::size_t width = npy_size(input, header.type, {"<f4", "<f8", "|u1"});
  if (header.shape.size() != 2)
    bad_array(input, fmt::format("features must have 2 dimensions, found {}", header.shape.size()));
  if (labelled && header.shape[0] != all_labels.size())
    bad_array(input,
              fmt::format("found {} rows for {} labels", header.shape[0], all_labels.size()));
  Dataset out;
  out.features = header.shape[1];
  out.classes = classes;
  check_width(input, out.features);
  std::size_t row = 0;
  for_each_piece(input, product(input, {header.shape[0], out.features, width}),
                 out.features * width, [&](std::span<const char> piece) {
                   for (std::size_t at = 0; at < piece.size(); at += out.features * width, ++row) {
                     const std::size_t before = out.x.size();
                     bool finite = true;
                     for (std::size_t k = 0; k < out.features && finite; ++k) {
                       const double value = npy_number(header.type, piece.data() + at + k * width);
                       finite = std::isfinite(value);
                       if (!finite && on_bad_row == BadRow::kRefuse)
                         bad_array(input, fmt::format("row {}, column {} is {}", row, k, value));
                       out.x.push_back(finite ? scaled(value, bounds) : 0);
                     }
                     if (finite) {
                       if (labelled) out.label.push_back(all_labels[row]);
                       ++out.rows;
                     } else {
                       out.x.resize(before);
                       out.skipped.push_back(row);
                     }
                   }
                 });
  name_features(out);
  out.digest = digest_of(out);
  return out;
}

}  // namespace discreet::data
