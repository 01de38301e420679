#include "discreet/run/trace_seal.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/run/mac_impl.h"
#include "discreet/run/secret_key.h"
#include "discreet/run/step_count.h"

namespace discreet::run {
namespace {

constexpr std::string_view kPrefix = "discreet-seal-1 ";
constexpr std::string_view kPrefixWithNote = "discreet-seal-2 ";
static_assert(kPrefix.size() == kPrefixWithNote.size());
constexpr std::string_view kStream = "trace seal";
constexpr std::size_t kHex = 2 * std::tuple_size_v<Digest>;

constexpr const char* kOperator = "seal";

std::string body_of(const Seal& seal) {
  const bool has_note = !seal.ledger_note.empty();
  return fmt::format("{}{} {} {} {}", has_note ? kPrefixWithNote : kPrefix, seal.at.lines,
                     seal.at.bytes, to_hex(seal.at.head),
                     has_note ? to_hex(bytes_of(seal.ledger_note)) + " " : "");
}

// The next number of the text, and the space after it.
std::uint64_t take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ')
    malformed(kOperator, "trace.seal does not contain a seal");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return value;
}

// What a sealed text says; its MAC holds, so that our own writer wrote it.
Seal seal_of(std::string_view body) {
  std::string_view rest = body.substr(kPrefix.size());
  Seal out;
  TracePosition& at = out.at;
  at.lines = take_number(rest);
  at.bytes = take_number(rest);
  const Bytes head = from_hex(rest.substr(0, kHex));
  if (head.size() != at.head.size()) malformed(kOperator, "trace.seal does not contain a seal");
  std::copy(head.begin(), head.end(), at.head.begin());
  if (body.starts_with(kPrefixWithNote)) {
    rest.remove_prefix(kHex + 1);
    const Bytes note = from_hex(rest.substr(0, rest.find(' ')));
    out.ledger_note.assign(note.begin(), note.end());
  }
  return out;
}

// The seal as it stands, with a MAC that holds; none if there is no such file.
std::optional<Seal> authentic_seal(const std::filesystem::path& run, const random::Key& secret) {
  if (!std::filesystem::exists(run / kSealFile)) return std::nullopt;
  const Bytes bytes = read_file(run / kSealFile, std::size_t{1} << 18);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() <= kPrefix.size() + kHex ||
      (!text.starts_with(kPrefix) && !text.starts_with(kPrefixWithNote)) || text.back() != '\n')
    malformed(kOperator, "trace.seal does not contain a seal");
  const std::string_view body = text.substr(0, text.size() - kHex - 1);
  const std::string tag = to_hex(mac(bytes_of(body), secret, kStream));
  if (CRYPTO_memcmp(tag.data(), text.data() + body.size(), kHex) != 0)
    malformed(kOperator, "trace.seal was altered, or belongs to a run with another secret.key");
  return seal_of(body);
}

void require_sealed(const Seal& seal, std::span<const TraceLine> trace) {
  if (!pass_through(trace, seal.at))
    malformed(
        kOperator,
        "trace.jsonl differs from what the run sealed: lines among its first {} were changed or "
        "removed since; restore the original file",
        seal.at.lines);
}

}  // namespace

void write_seal(const std::filesystem::path& run, const Seal& seal, const random::Key& secret) {
  const std::string body = body_of(seal);
  const std::string text = body + to_hex(mac(bytes_of(body), secret, kStream)) + "\n";
  write_atomically(run / kSealFile, bytes_of(text), Access::kOwner);
}

std::optional<Seal> open_seal(const std::filesystem::path& run, const random::Key& secret,
                              std::span<const TraceLine> trace) {
  std::optional<Seal> seal = authentic_seal(run, secret);
  if (seal) require_sealed(*seal, trace);
  return seal;
}

SealFiles read_seal(const std::filesystem::path& run, bool secure,
                    const std::optional<std::filesystem::path>& secret) {
  const auto not_verified = [](std::string why) { return SealFiles{{}, {}, std::move(why)}; };
  if (!secure) return not_verified("the run's key follows from a public seed");
  const std::filesystem::path path = secret.value_or(run / "secret.key");
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return not_verified(secret ? "the given key does not exist"
                               : "secret.key does not exist; pass the key with --secret");
  if (!secret && status.st_uid != ::geteuid())
    return not_verified("secret.key belongs to another user; pass the key with --secret");
  std::optional<random::Key> key;
  try {
    key = load_secret(path);
  } catch (const Error& error) {
    // A key file that was overwritten is damage or an attack, not a key kept elsewhere.
    if (error.code() == ErrorCode::kMalformed) throw;
    return not_verified("secret.key cannot be read, or others may read it");
  }
  SealFiles files{authentic_seal(run, *key), StepCount::read(run, *key), {}};
  if (!files.seal)
    return not_verified(
        "trace.seal does not exist: the run was written by a version without seals, or the file "
        "was removed; resuming the run seals it");
  return files;
}

SealCheck check_seal(const SealFiles& files, std::span<const TraceLine> trace) {
  if (!files.seal) return {false, files.why_not, 0, {}, false};
  require_sealed(*files.seal, trace);
  if (files.counted && std::ranges::count(trace, "iter", &TraceLine::kind) <
                           static_cast<std::int64_t>(*files.counted))
    return {false,
            "trace.steps counts more steps than the trace has: lines at its end were removed, or "
            "an earlier state was restored; resuming the run charges them",
            0,
            {},
            false};
  return {true, {}, files.seal->at.lines, files.seal->ledger_note, files.counted.has_value()};
}

}  // namespace discreet::run
