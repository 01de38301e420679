#include "discreet/run/checkpoint.h"

#include <fmt/core.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/run/mac_impl.h"

namespace discreet::run {
namespace {

constexpr std::string_view kFormat = "discreet-checkpoint-1";

constexpr const char* kOperator = "checkpoint";

cbor::Value value_of(const Checkpoint& c) {
  return cbor::map({{"format", kFormat},
                    {"specification", c.specification},
                    {"config", ByteView(c.config)},
                    {"layout", ByteView(c.layout)},
                    {"step", c.step},
                    {"trace_bytes", c.trace.bytes},
                    {"trace_lines", c.trace.lines},
                    {"trace_head", ByteView(c.trace.head)},
                    {"mechanism", c.mechanism},
                    {"training", c.training}});
}

Digest digest_of(const cbor::Value& value) {
  const ByteView bytes = value.as_bytes();
  Digest out{};
  if (bytes.size() != out.size()) malformed(kOperator, "a digest has {} bytes", bytes.size());
  std::ranges::copy(bytes, out.begin());
  return out;
}

Bytes bytes_in(const cbor::Value& value) {
  const ByteView bytes = value.as_bytes();
  return {bytes.begin(), bytes.end()};
}

Checkpoint checkpoint_of(const cbor::Value& value) try {
  if (value.at("format").as_text() != kFormat)
    malformed(kOperator, "its format is {}; expected {}", value.at("format").as_text(), kFormat);
  Checkpoint c;
  c.specification = value.at("specification").as_text();
  c.config = digest_of(value.at("config"));
  c.layout = digest_of(value.at("layout"));
  c.step = value.at("step").as_unsigned();
  c.trace = {value.at("trace_bytes").as_unsigned(), value.at("trace_lines").as_unsigned(),
             digest_of(value.at("trace_head"))};
  c.mechanism = bytes_in(value.at("mechanism"));
  c.training = bytes_in(value.at("training"));
  return c;
} catch (const Error& error) {
  if (error.code() == ErrorCode::kMalformed) throw;
  malformed(kOperator, "{}", error.sentence());
}

void require_same(const Checkpoint& found, const Expected& expected) {
  std::string differences;
  const auto compare = [&](const char* what, const std::string& is, const std::string& should) {
    if (is == should) return;
    if (!differences.empty()) differences += "; ";
    differences += fmt::format("its {} is {}, but this run's is {}", what, is, should);
  };
  compare("specification", found.specification, expected.specification);
  compare("configuration", to_hex(found.config), to_hex(expected.config));
  compare("model layout", to_hex(found.layout), to_hex(expected.layout));
  if (differences.empty()) return;
  invalid_input(kOperator, "this checkpoint belongs to another run: {}", differences);
}

}  // namespace

Bytes seal(const Checkpoint& checkpoint, const random::Key& secret) {
  Bytes out = cbor::encode(value_of(checkpoint));
  const Digest tag = mac(out, secret, "checkpoint");
  out.insert(out.end(), tag.begin(), tag.end());
  return out;
}

Checkpoint open(ByteView bytes, const random::Key& secret, const Expected& expected) {
  constexpr std::size_t kTag = std::tuple_size_v<Digest>;
  if (bytes.size() <= kTag) malformed(kOperator, "{} bytes are not a checkpoint", bytes.size());
  const ByteView body = bytes.first(bytes.size() - kTag);
  const Digest tag = mac(body, secret, "checkpoint");
  if (CRYPTO_memcmp(tag.data(), bytes.last(kTag).data(), kTag) != 0)
    malformed(kOperator,
              "its seal is not that of this run: it was truncated, altered, or belongs to another "
              "secret.key");
  Checkpoint found = checkpoint_of(cbor::decode(body));
  require_same(found, expected);
  return found;
}

void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                      const random::Key& secret) {
  write_atomically(path, seal(checkpoint, secret), Access::kOwner);
}

Checkpoint read_checkpoint(const std::filesystem::path& path, const random::Key& secret,
                           const Expected& expected) {
  return open(read_file(path, std::size_t{1} << 36), secret, expected);
}

}  // namespace discreet::run
