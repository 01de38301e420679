// Two properties of discreet/base/cbor. Whatever the bytes: decode throws kMalformed, or encode
// gives the same bytes back. Whatever value the bytes describe: decode(encode(value)) == value.
#include <algorithm>
#include <bit>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace cbor = discreet::cbor;
using discreet::ByteView;

namespace {

// Reads the input as instructions for building a value; when it runs out, zeros follow.
class Builder {
 public:
  explicit Builder(ByteView input) : input_(input) {}

  cbor::Value value(int depth) {
    const unsigned kind = number(1) % (depth < 8 ? 12 : 8);
    switch (kind) {
      case 0: return number(1);
      case 1: return number(8);
      case 2: return cbor::negative(number(8));
      case 3: return std::bit_cast<double>(number(8));
      case 4: return std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
      case 5: return number(1) % 2 == 0;
      case 6: return piece();
      case 7: return nullptr;
      case 8: return text();
      case 9: return tag(depth);
      case 10: return array(depth);
      default: return map(depth);
    }
  }

 private:
  std::uint64_t number(int width) {
    std::uint64_t n = 0;
    for (int i = 0; i < width; ++i) {
      n = n << 8 | (input_.empty() ? 0 : input_[0]);
      if (!input_.empty()) input_ = input_.subspan(1);
    }
    return n;
  }

  ByteView piece() {
    const std::size_t wanted = number(1);
    const ByteView taken = input_.first(std::min(wanted, input_.size()));
    input_ = input_.subspan(taken.size());
    return taken;
  }

  cbor::Value text() {
    const ByteView taken = piece();
    try {
      return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
    } catch (const discreet::Error& error) {
      fuzz::require(error.code() == discreet::ErrorCode::kInvalidInput, "text refused oddly");
      return discreet::to_hex(taken);
    }
  }

  cbor::Value tag(int depth) {
    const std::uint64_t tag_number = number(2);
    return cbor::tag(tag_number, value(depth + 1));
  }

  cbor::Value array(int depth) {
    std::vector<cbor::Value> items(number(1) % 8);
    for (cbor::Value& item : items) item = value(depth + 1);
    return cbor::array(std::move(items));
  }

  cbor::Value map(int depth) {
    std::vector<cbor::Entry> entries;
    for (std::uint64_t i = number(1) % 8; i > 0; --i) {
      cbor::Value key = value(depth + 1);
      const auto same = [&](const cbor::Entry& e) { return e.key == key; };
      if (std::none_of(entries.begin(), entries.end(), same)) {
        entries.push_back({std::move(key), value(depth + 1)});
      }
    }
    return cbor::map(std::move(entries));
  }

  ByteView input_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView input(data, size);
  try {
    const discreet::Bytes again = cbor::encode(cbor::decode(input));
    fuzz::require(std::equal(again.begin(), again.end(), input.begin(), input.end()),
                  "decode accepted bytes that encode differently");
  } catch (const discreet::Error& error) {
    fuzz::require(error.code() == discreet::ErrorCode::kMalformed, "decode threw another code");
  }
  const cbor::Value built = Builder(input).value(0);
  fuzz::require(cbor::decode(cbor::encode(built)) == built, "a value did not survive its encoding");
  return 0;
}
