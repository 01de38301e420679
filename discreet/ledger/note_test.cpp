#include "discreet/ledger/note.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"

namespace discreet::ledger {
namespace {

using admission::SigningKey;

SigningKey test_key() {  // RFC 8032, test 1
  return SigningKey::from_seed(
      from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"));
}

// C2SP's vkey of signed-note.md, of which we have no private key.
constexpr std::string_view kPublished =
    "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";

std::string a_note() { return sign_note({"example.com/log", 7, sha256({})}, test_key()); }
NoteKey a_key() { return {"example.com/log", test_key().public_key()}; }

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(NoteKey, ReadsAndWritesTheKeyThatC2spPublishes) {
  const NoteKey key = NoteKey::from_text(kPublished);
  EXPECT_EQ(key.name, "example.com/foo");
  EXPECT_EQ(to_hex(key.id()), "530d903a");
  EXPECT_EQ(key.to_text(), kPublished);
}

TEST(NoteKey, RefusesAnIdOrTypeThatDoesNotFit) {
  for (const std::string& text :
       {replaced(std::string(kPublished), "530d903a", "530d903b"),
        replaced(std::string(kPublished), "foo", "fob"),
        replaced(std::string(kPublished), "+Ae", "+Be"),
        replaced(std::string(kPublished), "U2k", "U2l"), std::string("example.com/foo"),
        std::string("+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"), std::string()})
    EXPECT_THROW(NoteKey::from_text(text), Error) << text;
}

TEST(Note, HasTheLinesOfACheckpointAndOneSignature) {
  EXPECT_TRUE(
      a_note().starts_with("example.com/log\n7\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n"
                           "\u2014 example.com/log "));
  const auto opened = open_note(a_note(), a_key());
  ASSERT_TRUE(opened);
  EXPECT_EQ(*opened, (Checkpoint{"example.com/log", 7, sha256({})}));
}

TEST(Note, AnyFlippedBitIsRefused) {
  const std::string note = a_note();
  for (std::size_t bit = 0; bit < 8 * note.size(); ++bit) {
    std::string flipped = note;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      EXPECT_FALSE(open_note(flipped, a_key())) << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    }
  }
}

TEST(Note, AnotherKeyOrNameDidNotSignIt) {
  const NoteKey stranger{"example.com/log", SigningKey::generate().public_key()};
  EXPECT_FALSE(open_note(a_note(), stranger));
  const NoteKey other_name{"example.com/lag", test_key().public_key()};
  EXPECT_FALSE(open_note(a_note(), other_name));
}

TEST(Note, SignaturesOfOthersMayFollowButNotAWrongOneOfOurs) {
  const std::string witness = "\u2014 witness.example Az3grlzjvTEST0123456789abcdefh==\n";
  EXPECT_THROW(open_note(a_note() + witness, a_key()), Error);  // stray bits in base64
  const std::string fine = "\u2014 witness.example " + to_base64(Bytes(76, 9)) + "\n";
  EXPECT_TRUE(open_note(a_note() + fine, a_key()));
  Bytes wrong(68, 1);
  const auto id = a_key().id();
  std::copy(id.begin(), id.end(), wrong.begin());
  EXPECT_FALSE(open_note(a_note() + "\u2014 example.com/log " + to_base64(wrong) + "\n", a_key()));
}

TEST(Note, RefusesWhatIsNoCheckpoint) {
  const std::string note = a_note();
  std::string many = note;
  for (int i = 0; i < 16; ++i) many += "\u2014 w " + to_base64(Bytes(76, 9)) + "\n";
  for (const std::string& text :
       {std::string(), std::string("\n\n"), note.substr(0, note.size() - 1),
        note.substr(0, note.find("\u2014")), replaced(note, "\n7\n", "\n07\n"),
        replaced(note, "\n7\n", "\n-7\n"), replaced(note, "\n7\n", "\n18446744073709551616\n"),
        replaced(note, "SuFU=\n", "SuFU=\nextension\n"), replaced(note, "log\n", "lo\tg\n"),
        replaced(note, "SuFU=", "SuFV="), replaced(note, "log\n", "l\xffg\n"), many,
        std::string(100000, 'a') + note})
    EXPECT_THROW(open_note(text, a_key()), Error) << text.substr(0, 100);
  EXPECT_THROW(sign_note({"two words", 1, {}}, test_key()), Error);
}

}  // namespace
}  // namespace discreet::ledger
