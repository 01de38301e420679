#pragma once

#include <string_view>

// The files that a page carries inside itself: ledger.js and style.css beside this header.
namespace discreet::report {

// style.css, for light, dark, narrow and printed pages. Colours have a contrast of at least 4.5 : 1
// to their background.
extern const std::string_view kStyle;

// Added to the confidential page: every printed sheet says so.
inline constexpr std::string_view kConfidentialStyle =
    "@page{@top-right{content:\"Confidential\";font:bold 8pt sans-serif;color:#b3261e}}\n";

// ledger.js, the only script of the page. It checks the entries that the page carries, by
// WebCrypto, and sends no request. Every verdict begins as COULD NOT CHECK and changes only after
// the whole check behind it was done. The script writes text only, never HTML.
//
// Checked: the tree of RFC 9162 at every note, the notes' Ed25519 signatures, the leaf after each
// note (FORMAT.md rules 1 and 2), numbering, epochs, withdrawals and plans (3, 5, 6, 12 and the
// counts of 8).
// Not checked: spends (9), attestations and withdrawal signatures (4, 5), completeness of epochs
// (8), the digest of summaries (10). The page says so.
extern const std::string_view kLedgerScript;

}  // namespace discreet::report
