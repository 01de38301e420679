#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/hash.h"

// Checkpoints of a log as signed notes (C2SP tlog-checkpoint and signed-note), which other
// transparency tools read:
//
//   example.com/log                                  the origin
//   20852163                                         the number of leaves
//   CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     the root
//                                                    a blank line, then one line per signature
//   — example.com/log Az3grl…                        name, base64 of key id ‖ signature
//
// Each signature is of the text up to the blank line. We write one signature and no extension
// lines; signatures of others (witnesses) may follow ours and are not looked at.
namespace discreet::ledger {

struct Checkpoint {
  std::string origin;  // a name as NoteKey's
  std::uint64_t size = 0;
  Digest root{};
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// A name and the Ed25519 key it signs with.
struct NoteKey {
  std::string name;  // not empty; no space, no '+', no control character; well-formed UTF-8
  admission::PublicKey key;

  // SHA-256(name ‖ 0A ‖ 01 ‖ key)[0:4]: says which key, proves nothing.
  std::array<std::uint8_t, 4> id() const;
  // "name+id+base64(01 ‖ key)", the text in which C2SP tools pass public keys around.
  std::string to_text() const;
  // Throws kMalformed for any other text, an id that does not fit included.
  static NoteKey from_text(std::string_view text);
};

// The key of a text in any of its forms: NoteKey's, 64 hexadecimal digits, PEM. White space around
// it is taken. Throws kMalformed for any other.
admission::PublicKey public_key_from_text(std::string_view text);

// Whether a text can be a name of NoteKey.
bool is_note_name(std::string_view name) noexcept;

// The note of a checkpoint with one signature, by the key of the checkpoint's origin. Throws
// kInvalidInput if the origin is no name.
std::string sign_note(const Checkpoint& checkpoint, const admission::SigningKey& key);

// The checkpoint of a note, if `key` signed it; none if no signature is of this key, or one is and
// is wrong. Throws kMalformed for a text that is no signed note of a checkpoint: longer than 64
// KiB, bad UTF-8 or control characters, a size with leading zeros, base64 with stray bits, more
// than three lines of text, no signature or more than 16.
std::optional<Checkpoint> open_note(std::string_view note, const NoteKey& key);

// The checkpoint that a note claims, whoever signed it. Throws as open_note does.
Checkpoint read_unverified(std::string_view note);

}  // namespace discreet::ledger
