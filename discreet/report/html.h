#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "discreet/report/ledger_view.h"
#include "discreet/report/summary.h"

// A self-contained HTML page that states what a run promises, to whom, and what it does not
// promise. It loads nothing from elsewhere (its Content-Security-Policy forbids it), pictures are
// inline SVG, and equal summaries give equal bytes. Text from the run is escaped. A page with a
// ledger contains its entries and one script, which verifies them in the browser; without a ledger
// there is no script.
namespace discreet::report {

// For readers who may see the data; a banner says so.
std::string confidential_page(const RunSummary& summary, const LedgerView* ledger = nullptr);

// For everyone: only declared or scheduled values. Throws kInvalidInput for a run that failed or
// has not ended, because the time of that may depend on a record. For a run that was stopped before
// its planned end it omits the ledger, whose number of epochs would reveal when.
std::string public_page(const Declared& declared, const LedgerView* ledger = nullptr);

// Writes the page of the run directory `run` to `out`, atomically; the confidential page with mode
// 0600. ledger: by default ledger_of(run); it must extend RUN/ledger.note if that exists. secret:
// the run's key, by default RUN/secret.key. Throws as summarize(), view_ledger(), public_page() and
// write_atomically(). Returns the summary that the page shows.
RunSummary write_report(const std::filesystem::path& run, bool is_public,
                        const std::filesystem::path& out,
                        std::optional<std::filesystem::path> ledger = {},
                        const std::optional<std::filesystem::path>& secret = {});

// RUN/report.html, or RUN/report-public.html.
std::filesystem::path default_report(const std::filesystem::path& run, bool is_public);

}  // namespace discreet::report
