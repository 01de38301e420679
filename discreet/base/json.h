#pragma once

#include <string>

#include "discreet/base/cbor.h"

namespace discreet {

// One value as one line of JSON (RFC 8259). Equal values give identical text: keys are sorted by
// their UTF-8 bytes, there are no spaces, and a number has the shortest form that reads back to the
// same binary64. A float with an integral value keeps ".0" so that it remains a float. Non-ASCII
// characters are not escaped; bytes become lower-case hexadecimal text. Used for traces and
// reports; everything hashed, signed or restored is CBOR.
// Throws kInvalidInput for values that JSON cannot represent: NaN, infinities, tags, and map keys
// that are not text.
std::string to_json(const cbor::Value& value);

}  // namespace discreet
