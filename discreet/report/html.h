#pragma once

#include <filesystem>
#include <string>

#include "discreet/report/summary.h"

// One HTML file that says what a run promises, to whom, and what it does not. Nothing is loaded
// from anywhere (its own Content-Security-Policy forbids it), pictures are SVG in the page, and
// the same summary always gives the same bytes. Text that comes from the run is escaped.
namespace discreet::report {

// For those who may see the data: with a banner that says so.
std::string confidential_page(const RunSummary& summary);

// For anyone: nothing but what was declared or scheduled. Throws kInvalidInput for a run that
// failed or has no end yet: when that happens may depend on a record.
std::string public_page(const Declared& declared);

// Writes the page of the run directory `run` to `out`, atomically; the confidential one with mode
// 0600. Throws as summarize(), public_page() and write_atomically(). Returns what it is a page of.
RunSummary write_report(const std::filesystem::path& run, bool is_public,
                        const std::filesystem::path& out);

// RUN/report.html, or RUN/report-public.html.
std::filesystem::path default_report(const std::filesystem::path& run, bool is_public);

}  // namespace discreet::report
