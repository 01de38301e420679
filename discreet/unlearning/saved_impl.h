#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

// The format of this room's states: deterministic CBOR maps with a "type"; long rows of numbers are
// little-endian byte strings.
namespace discreet::unlearning {

static_assert(std::endian::native == std::endian::little, "rows are written as they are in memory");

[[noreturn]] inline void malformed_state(const std::string& why) {
  malformed("restore", "{}; pass the bytes that save returned", why);
}

template <class T>
Bytes packed(std::span<const T> values) {
  Bytes out(values.size_bytes());
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}
template <class T>
Bytes packed(const std::vector<T>& values) {
  return packed(std::span<const T>(values));
}

template <class T>
std::vector<T> unpacked(ByteView bytes) {
  if (bytes.size() % sizeof(T) != 0) malformed_state("a row of numbers is truncated");
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
template <class T>
std::vector<T> unpacked(const cbor::Value& state, const char* key, std::size_t wanted) {
  std::vector<T> out = unpacked<T>(state.at(key).as_bytes());
  if (out.size() != wanted) malformed_state(std::string(key) + " has the wrong length");
  return out;
}

// Reads with `read`; throws kMalformed for anything that does not fit.
template <class Read>
auto restored(ByteView bytes, std::string_view type, const Read& read) {
  try {
    const cbor::Value state = cbor::decode(bytes);
    if (state.at("type").as_text() != type) malformed_state("the state has another type");
    return read(state);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed_state(error.sentence());
  }
}

template <class E>
E code_of(const cbor::Value& value, std::uint64_t most) {
  const std::uint64_t code = value.as_unsigned();
  if (code > most) malformed_state("a code is unknown");
  return static_cast<E>(code);
}

}  // namespace discreet::unlearning
