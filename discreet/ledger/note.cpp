#include "discreet/ledger/note.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"

namespace discreet::ledger {
namespace {

constexpr std::size_t kMostBytes = 1 << 16;
constexpr std::size_t kMostSignatures = 16;
constexpr std::string_view kDash = "\u2014 ";
constexpr std::uint8_t kEd25519Type = 1;

constexpr const char* kOperator = "note";

struct SignatureLine {
  std::string_view name;
  Bytes id_and_signature;
};

struct Parts {
  std::string_view text;  // what is signed, with its last newline
  std::vector<SignatureLine> signatures;
  Checkpoint checkpoint;
};

// Removes the first line and returns it without its newline.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) malformed(kOperator, "a line of the note has no end");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

std::uint64_t parse_size(std::string_view text) {
  std::uint64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || fmt::format("{}", size) != text)
    malformed(kOperator, "{} is not a number of leaves", excerpt(text));
  return size;
}

SignatureLine parse_signature(std::string_view line) {
  if (!line.starts_with(kDash)) malformed(kOperator, "a signature line does not start with a dash");
  line.remove_prefix(kDash.size());
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) malformed(kOperator, "a signature line has no signature");
  SignatureLine found{line.substr(0, space), from_base64(line.substr(space + 1))};
  if (!is_note_name(found.name)) malformed(kOperator, "the name in a signature line is not valid");
  if (found.id_and_signature.size() < 5) malformed(kOperator, "a signature is too short");
  return found;
}

Parts parse(std::string_view note) {
  if (note.size() > kMostBytes)
    malformed(kOperator, "{} bytes are too many for a note", note.size());
  if (find_bad_utf8(bytes_of(note))) malformed(kOperator, "a note must be UTF-8 text");
  for (const char c : note)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n')
      malformed(kOperator, "a note must not have control characters");
  const std::size_t blank = note.rfind("\n\n");
  if (blank == std::string_view::npos)
    malformed(kOperator, "a blank line must separate the text from its signatures");
  Parts parts;
  parts.text = note.substr(0, blank + 1);

  std::string_view rest = parts.text;
  parts.checkpoint.origin = take_line(rest);
  if (!is_note_name(parts.checkpoint.origin))
    malformed(kOperator, "the first line is not a valid origin");
  parts.checkpoint.size = parse_size(take_line(rest));
  const Bytes root = from_base64(take_line(rest));
  if (root.size() != parts.checkpoint.root.size())
    malformed(kOperator, "the root does not have 32 bytes");
  std::copy(root.begin(), root.end(), parts.checkpoint.root.begin());
  if (!rest.empty())
    malformed(kOperator, "a checkpoint must have three lines; extensions are not supported");

  rest = note.substr(blank + 2);
  if (rest.empty()) malformed(kOperator, "the note has no signature");
  while (!rest.empty()) {
    if (parts.signatures.size() == kMostSignatures)
      malformed(kOperator, "the note has too many signatures");
    parts.signatures.push_back(parse_signature(take_line(rest)));
  }
  return parts;
}

std::string text_of(const Checkpoint& checkpoint) {
  return fmt::format("{}\n{}\n{}\n", checkpoint.origin, checkpoint.size,
                     to_base64(checkpoint.root));
}

}  // namespace

bool is_note_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 256 && !find_bad_utf8(bytes_of(name)) &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) <= 0x20 || c == '+' || c == 0x7f;
         });
}

std::array<std::uint8_t, 4> NoteKey::id() const {
  const std::uint8_t middle[] = {'\n', kEd25519Type};
  const Digest digest = Sha256().update(bytes_of(name)).update(middle).update(key.bytes()).finish();
  return {digest[0], digest[1], digest[2], digest[3]};
}

std::string NoteKey::to_text() const {
  Bytes typed = {kEd25519Type};
  typed.insert(typed.end(), key.bytes().begin(), key.bytes().end());
  return fmt::format("{}+{}+{}", name, to_hex(id()), to_base64(typed));
}

NoteKey NoteKey::from_text(std::string_view text) {
  const std::size_t first = text.find('+');
  const std::size_t second = first == std::string_view::npos ? first : text.find('+', first + 1);
  if (second == std::string_view::npos)
    malformed(kOperator, "a public key must be written as name+id+base64");
  const std::string_view name = text.substr(0, first);
  if (!is_note_name(name)) malformed(kOperator, "the name of the public key is not valid");
  const Bytes typed = from_base64(text.substr(second + 1));
  if (typed.size() != 33 || typed[0] != kEd25519Type)
    malformed(kOperator, "the public key is not an Ed25519 key (a byte 01, then 32 bytes)");
  NoteKey key{std::string(name), admission::PublicKey::from_bytes(ByteView(typed).subspan(1))};
  if (to_hex(key.id()) != text.substr(first + 1, second - first - 1))
    malformed(kOperator, "the id of the public key {} is wrong; expected {}", name,
              to_hex(key.id()));
  return key;
}

LedgerKey ledger_key_from_text(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  // The base64 of a PEM may have a '+' too.
  if (!text.starts_with("-----") && text.find('+') != std::string_view::npos)
    return NoteKey::from_text(text);
  return admission::PublicKey::from_text(text);
}

std::string sign_note(const Checkpoint& checkpoint, const admission::SigningKey& key) {
  if (!is_note_name(checkpoint.origin))
    invalid_input("sign_note", "\"{}\" is not a valid origin: it must not contain spaces or '+'",
                  checkpoint.origin);
  const NoteKey who{checkpoint.origin, key.public_key()};
  const std::string text = text_of(checkpoint);
  const auto id = who.id();
  const admission::Signature signature = key.sign(bytes_of(text));
  Bytes both(id.begin(), id.end());
  both.insert(both.end(), signature.begin(), signature.end());
  return fmt::format("{}\n{}{} {}\n", text, kDash, who.name, to_base64(both));
}

std::optional<Checkpoint> open_note(std::string_view note, const NoteKey& key) {
  Parts parts = parse(note);
  const auto id = key.id();
  bool signed_by_key = false;
  for (const SignatureLine& line : parts.signatures) {
    const ByteView bytes = line.id_and_signature;
    if (line.name != key.name || !std::equal(id.begin(), id.end(), bytes.begin())) continue;
    if (!key.key.verifies(bytes_of(parts.text), bytes.subspan(id.size()))) return std::nullopt;
    signed_by_key = true;
  }
  if (!signed_by_key) return std::nullopt;
  return std::move(parts.checkpoint);
}

Checkpoint read_unverified(std::string_view note) { return parse(note).checkpoint; }

}  // namespace discreet::ledger
