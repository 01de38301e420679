#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/hash.h"

// Checkpoints of a log as signed notes (C2SP tlog-checkpoint and signed-note), readable by other
// transparency tools:
//
//   example.com/log                                  the origin
//   20852163                                         the number of leaves
//   CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     the root
//                                                    a blank line, then one line per signature
//   — example.com/log Az3grl…                        name, base64 of key id ‖ signature
//
// Each signature covers the text up to the blank line. This library writes one signature and no
// extension lines; signatures of others (witnesses) may follow and are ignored.
namespace discreet::ledger {

struct Checkpoint {
  std::string origin;  // same syntax as NoteKey::name
  std::uint64_t size = 0;
  Digest root{};
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// A name and the Ed25519 key it signs with.
struct NoteKey {
  std::string name;  // not empty; no space, no '+', no control character; well-formed UTF-8
  admission::PublicKey key;

  // SHA-256(name ‖ 0A ‖ 01 ‖ key)[0:4]: identifies the key, but proves nothing.
  std::array<std::uint8_t, 4> id() const;
  // "name+id+base64(01 ‖ key)", the text form of public keys in C2SP tools.
  std::string to_text() const;
  // Throws kMalformed for any other text, including an id that does not match the key.
  static NoteKey from_text(std::string_view text);
};

// The expected key of a ledger, and the ledger's name if it is known: one key may sign several
// ledgers.
struct LedgerKey {
  admission::PublicKey key;
  std::string name;  // empty: any ledger

  LedgerKey(admission::PublicKey of_any) : key(of_any) {}  // NOLINT: a key is enough
  LedgerKey(NoteKey named) : key(named.key), name(std::move(named.name)) {}  // NOLINT
  bool is_of(std::string_view origin) const noexcept { return name.empty() || name == origin; }
};

// Reads a key in any text form: the form of NoteKey, which contains the name; 64 hexadecimal
// digits; or PEM. Ignores surrounding white space. Throws kMalformed for any other text.
LedgerKey ledger_key_from_text(std::string_view text);

// True if a text is a valid name of a NoteKey.
bool is_note_name(std::string_view name) noexcept;

// The note of a checkpoint with one signature, by the key of the checkpoint's origin. Throws
// kInvalidInput if the origin is not a valid name.
std::string sign_note(const Checkpoint& checkpoint, const admission::SigningKey& key);

// The checkpoint of a note if `key` signed it; empty if no signature is by this key, or if that
// signature is wrong. Throws kMalformed for a text that is not a signed note of a checkpoint:
// longer than 64 KiB, invalid UTF-8 or control characters, a size with leading zeros, base64 with
// stray bits, more than three lines of text, no signature or more than 16.
std::optional<Checkpoint> open_note(std::string_view note, const NoteKey& key);

// The checkpoint that a note claims, without checking signatures. Throws as open_note does.
Checkpoint read_unverified(std::string_view note);

}  // namespace discreet::ledger
