// Properties of discreet/release, whatever the bytes. The first byte chooses what they are:
//   a statement  decode throws kMalformed, or encodes back to the same text
//   an envelope  a gate is made, and denies: nobody here has the key
//   a request    read throws kInvalidInput in one line, or a gate that allows decides it
//   scopes       read throws kInvalidInput
#include <string>

#include "discreet/base/error.h"
#include "discreet/release/release_testing.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;
using namespace discreet::release;

namespace {

const std::string& honest() {
  static const std::string envelope = [] {
    ReleaseTerms terms;
    terms.issued = release::testing::kToday;
    return sign(draft(release::testing::facts(), terms, std::nullopt),
                release::testing::release_key());
  }();
  return envelope;
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  const Manifest manifest = release::read_unverified(honest());
  return {seed(0, encode(manifest)), seed(1, honest())};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0:
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        fuzz::require(encode(decode_statement(text)) == text, "a manifest has two texts");
      });
      break;
    case 1: {
      const Gate gate(text, release::testing::evidence());
      const Decision decision = gate.decide(release::testing::request("predict"));
      fuzz::require(decision.allowed() == (text == honest()), "a forgery was allowed");
      break;
    }
    case 2: {
      static const Gate gate(honest(), release::testing::evidence());
      fuzz::throws_only({ErrorCode::kInvalidInput}, [&] {
        const Request request = parse_request(text);
        const Decision decision = gate.decide(request);
        fuzz::require(!decision.allowed() || request.generation_class == "predict",
                      "a class nobody declared was allowed");
      });
      break;
    }
    default: fuzz::throws_only({ErrorCode::kInvalidInput}, [&] { parse_scopes(text); }); break;
  }
  return 0;
}
