#include "discreet/random/key.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>

#include "discreet/base/error.h"
#include "discreet/base/hash.h"

namespace discreet::random {
namespace {

constexpr std::uint64_t kAnyProcess = 0;

// Counts the forks between the first process and this one.
std::atomic<std::uint64_t> forks{kAnyProcess + 1};

}  // namespace

std::uint64_t this_process() {
  static const int failure =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (failure != 0)
    io_error("Key", "the system has no memory to detect fork(), which the safety of keys requires");
  return forks.load(std::memory_order_relaxed);
}

Key Key::from_system() {
  Key key(this_process());
  if (getentropy(key.bytes_.data(), kSize) != 0) {
    io_error("Key::from_system",
             "the operating system provided no random bytes; use a kernel with getrandom");
  }
  return key;
}

Key Key::from_seed(std::uint64_t seed) {
  std::array<std::uint8_t, 8> little_endian;
  for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<std::uint8_t>(seed >> (8 * i));
  Key key(kAnyProcess);
  std::ranges::copy(
      Sha256().update(bytes_of("discreet/insecure-seed/1/")).update(little_endian).finish(),
      key.bytes_.begin());
  return key;
}

Key Key::from_bytes(ByteView bytes) {
  if (bytes.size() != kSize) {
    malformed("Key::from_bytes", "the key has {} bytes; expected {}; restore the key file",
              bytes.size(), kSize);
  }
  Key key(this_process());
  std::copy(bytes.begin(), bytes.end(), key.bytes_.begin());
  return key;
}

Key Key::derive(std::string_view name) const {
  if (name.empty()) {
    invalid_input("Key::derive", "a stream must have a name");
  }
  const std::string info = fmt::format("discreet/stream/1/{}\x01", name);
  Key key(process_);
  unsigned length = 0;
  if (HMAC(EVP_sha256(), bytes_.data(), kSize, bytes_of(info).data(), info.size(),
           key.bytes_.data(), &length) == nullptr) {
    io_error("Key::derive", "OpenSSL failed in HMAC");
  }
  return key;
}

void Key::require_own_process() const {
  if (process_ == kAnyProcess || process_ == this_process()) return;
  fail(ErrorCode::kRngConsumptionViolation, "Key",
       "this process was forked from one that holds the same key: both would draw the same noise, "
       "and the difference of their releases would contain none. Create the object after fork(), "
       "in the process that uses it, or start processes with spawn");
}

std::uint64_t parse_seed(std::string_view text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    invalid_config("parse_seed",
                   "'{}' is not a seed; it must be an integer from 0 to 18446744073709551615",
                   text);
  }
  return seed;
}

}  // namespace discreet::random
