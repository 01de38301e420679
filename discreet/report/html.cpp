#include "discreet/report/html.h"

#include <fmt/format.h>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/hash.h"
#include "discreet/base/version.h"
#include "discreet/report/page_assets.h"
#include "discreet/report/sections_impl.h"
#include "discreet/report/words_impl.h"

namespace discreet::report {
namespace {

std::string hashed(std::string_view text) {
  return fmt::format("'sha256-{}'", to_base64(sha256(bytes_of(text))));
}

// The policy admits this very style sheet, this very script if there is one, and nothing else.
std::string head(bool is_public, bool has_script) {
  std::string style(kStyle);
  if (!is_public) style += kConfidentialStyle;
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "{}; {}img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<meta name=\"robots\" content=\"noindex\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>Privacy report{}</title>\n<style>{}</style>\n</head>\n<body>\n",
      hashed(style), has_script ? fmt::format("script-src {}; ", hashed(kLedgerScript)) : "",
      is_public ? "" : " (confidential)", style);
}

// observed: none on the public page. ledger: none if the run has none.
std::string page(const Declared& declared, const Observed* observed, const LedgerView* ledger) {
  const bool is_public = observed == nullptr;
  const bool by_plan =
      declared.ended == Ended::kCompleted || declared.ended == Ended::kBudgetReached;
  const bool shows_ledger = ledger != nullptr && (by_plan || !is_public);
  std::string out = head(is_public, shows_ledger);
  out += banners(declared, is_public);
  out += "<main>\n";
  out += title(declared, observed);
  out += classes(declared);
  out += headline(declared, observed);
  out += figures(declared, observed);
  out += guarantees(declared, is_public);
  out += set_up(declared);
  out += noise(declared);
  if (!is_public) out += held_out(*observed) + happenings(*observed);
  if (ledger != nullptr) out += shows_ledger ? ledger_section(*ledger) : ledger_withheld();
  out += configuration(declared, is_public);
  out += provenance(declared, observed);
  out += fmt::format(
      "<footer>Written by discreet {}. This page loads nothing and sends nothing.</footer>\n"
      "</main>\n{}</body>\n</html>\n",
      version(), shows_ledger ? fmt::format("<script>{}</script>\n", kLedgerScript) : "");
  return out;
}

}  // namespace

std::string confidential_page(const RunSummary& summary, const LedgerView* ledger) {
  return page(summary.declared, &summary.observed, ledger);
}

std::string public_page(const Declared& declared, const LedgerView* ledger) {
  if (declared.ended == Ended::kFailed || declared.ended == Ended::kUnfinished)
    invalid_input("report",
                  "the run is {}: the time at which a run stops before its planned end may depend "
                  "on a record, so there is no public report of it; let it finish, resume it, or "
                  "create the confidential report",
                  to_string(declared.ended));
  return page(declared, nullptr, ledger);
}

RunSummary write_report(const std::filesystem::path& run, bool is_public,
                        const std::filesystem::path& out,
                        std::optional<std::filesystem::path> ledger,
                        const std::optional<std::filesystem::path>& secret) {
  RunSummary summary = summarize(run, secret);
  if (!ledger) ledger = ledger_of(run, summary.declared.config);
  std::optional<LedgerView> view;
  if (ledger) {
    const auto kept = last_note_of(run, summary.declared.config);
    if (summary.ledger_note && kept) require_extends(*ledger, *kept);
    // The sealed note is compared with the very file that is shown: RUN/ledger.note and the ledger
    // may be changed between two readings.
    view = view_ledger(*ledger, summary.ledger_note ? summary.ledger_note : kept);
  }
  const LedgerView* shown = view ? &*view : nullptr;
  const std::string text =
      is_public ? public_page(summary.declared, shown) : confidential_page(summary, shown);
  write_atomically(out, bytes_of(text), is_public ? Access::kShared : Access::kOwner);
  return summary;
}

std::filesystem::path default_report(const std::filesystem::path& run, bool is_public) {
  return run / (is_public ? "report-public.html" : "report.html");
}

}  // namespace discreet::report
