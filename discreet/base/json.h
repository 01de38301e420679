#pragma once

#include <string>

#include "discreet/base/cbor.h"

namespace discreet {

// One value as one line of JSON (RFC 8259), always the same text for the same value: keys in the
// order of their UTF-8 bytes, no spaces, numbers in the shortest form that reads back to the same
// binary64 (a float that is whole keeps ".0", so that it stays a float), non-ASCII characters as
// they are, bytes as lower-case hexadecimal text. For traces and reports; what is hashed, signed or
// restored is CBOR.
// Throws kInvalidInput for what JSON cannot hold: NaN, infinities, tags, map keys that are not
// text.
std::string to_json(const cbor::Value& value);

}  // namespace discreet
