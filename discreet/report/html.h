#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "discreet/report/ledger_view.h"
#include "discreet/report/summary.h"

// One HTML file that says what a run promises, to whom, and what it does not. Nothing is loaded
// from anywhere (its own Content-Security-Policy forbids it), pictures are SVG in the page, and
// the same summary always gives the same bytes. Text that comes from the run is escaped. A page
// with a ledger carries its entries and one script, which verifies them in the browser; without a
// ledger there is no script.
namespace discreet::report {

// For those who may see the data: with a banner that says so.
std::string confidential_page(const RunSummary& summary, const LedgerView* ledger = nullptr);

// For anyone: nothing but what was declared or scheduled. Throws kInvalidInput for a run that
// failed or has no end yet: when that happens may depend on a record. Of a run that was stopped
// before its plan it does not show the ledger, where the number of epochs says when.
std::string public_page(const Declared& declared, const LedgerView* ledger = nullptr);

// Writes the page of the run directory `run` to `out`, atomically; the confidential one with mode
// 0600. ledger: by default ledger_of(run); it must extend RUN/ledger.note if that is there. secret:
// the run's key, by default RUN/secret.key. Throws as summarize(), view_ledger(), public_page() and
// write_atomically(). Returns what it is a page of.
RunSummary write_report(const std::filesystem::path& run, bool is_public,
                        const std::filesystem::path& out,
                        std::optional<std::filesystem::path> ledger = {},
                        const std::optional<std::filesystem::path>& secret = {});

// RUN/report.html, or RUN/report-public.html.
std::filesystem::path default_report(const std::filesystem::path& run, bool is_public);

}  // namespace discreet::report
