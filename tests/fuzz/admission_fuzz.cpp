// Properties of discreet/admission, whatever the bytes. The first byte chooses what they are:
//   a descriptor    decode throws kMalformed, or encodes back to the same bytes
//   a signature     the same for COSE_Sign1
//   a statement     decode throws kMalformed
//   a contribution  the gate gives a verdict; it admits nothing that key 1 did not sign
//   a policy        read throws kInvalidDpConfig in one line that names the file, or its hash is
//                   that of a second reading
//   files           of anchors, statements, hashes: kInvalidInput (a line) or kMalformed (a
//   statement) a private key   in PEM: kMalformed or kInvalidInput
#include <string>

#include "discreet/admission/admission_gate.h"
#include "discreet/admission/anchor_file.h"
#include "discreet/admission/cose.h"
#include "discreet/admission/policy_testing.h"
#include "discreet/base/error.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;
using namespace discreet::admission;

namespace {

template <class F>
void malformed_or(F&& f) {
  fuzz::throws_only({ErrorCode::kMalformed}, f);
}
template <class F>
void invalid_or(F&& f) {
  fuzz::throws_only({ErrorCode::kInvalidInput}, f);
}

void policy(std::string_view text) {
  try {
    const Policy read = read_policy(text, "fuzz");
    fuzz::require(hash_of(read) == hash_of(read_policy(text, "again")), "two readings differ");
  } catch (const Error& error) {
    fuzz::require(error.code() == ErrorCode::kInvalidDpConfig, "another code was thrown");
    fuzz::require(error.sentence().starts_with("fuzz"), "the sentence does not name the file");
    fuzz::require(error.sentence().find('\n') == std::string::npos, "the sentence has two lines");
  }
}

}  // namespace

// Seeds for the formats above; the others are in corpus/admission.
std::vector<Bytes> fuzz::seeds() {
  const Bytes good = encode(admission::testing::clinical());
  const Bytes signature = attest(admission::testing::key_of(1), good);
  const Bytes statement = sign_rotation(admission::testing::key_of(1),
                                        admission::testing::key_of(2), admission::testing::now());
  return {seed(5, R"({"descriptor":")" + to_hex(good) + R"(","attestation":")" + to_hex(signature) +
                      "\"}\n"),
          seed(6, R"({"statement":")" + to_hex(statement) + "\"}\n"),
          seed(7, to_hex(hash_of(good)) + "\n"), seed(8, admission::testing::key_of(1).to_pem())};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteView bytes(data + 1, size - 1);
  const Bytes copy(bytes.begin(), bytes.end());
  switch (data[0] % 9) {
    case 0:
      malformed_or([&] {
        fuzz::require(encode(decode_descriptor(bytes)) == copy, "a descriptor has two encodings");
      });
      break;
    case 1:
      malformed_or([&] {
        fuzz::require(encode(decode_sign1(bytes)) == copy, "a message has two encodings");
      });
      break;
    case 2: malformed_or([&] { decode_statements({copy}); }); break;
    case 3: {
      static const Policy corpus = admission::testing::policy();
      static const Bytes good = encode(admission::testing::clinical());
      static const Bytes signature = attest(admission::testing::key_of(1), good);
      Gate gate(
          corpus,
          {.time = admission::testing::now(), .statements = {}, .withdrawn = {}, .exhausted = {}});
      const Contribution cases[] = {{copy, signature}, {good, copy}};
      for (const Verdict& v : gate.admit(cases))
        fuzz::require(!v.admitted() || v.hash == hash_of(good), "a forgery was admitted");
      break;
    }
    case 4: policy(fuzz::text_of(bytes)); break;
    case 5: invalid_or([&] { parse_anchors(fuzz::text_of(bytes), "fuzz"); }); break;
    case 6:
      fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kInvalidInput},
                        [&] { parse_statements(fuzz::text_of(bytes), "fuzz"); });
      break;
    case 7: invalid_or([&] { parse_hashes(fuzz::text_of(bytes), "fuzz"); }); break;
    default:
      fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kInvalidInput},
                        [&] { SigningKey::from_pem(fuzz::text_of(bytes), "passphrase"); });
      break;
  }
  return 0;
}
