#pragma once

#include <string>

#include "discreet/report/ledger_view.h"
#include "discreet/report/summary.h"

// The sections of the page in their order, as HTML. Those with Observed show confidential values;
// without it they show declared values only. To add a section, add a function here and a line in
// html.cpp.
namespace discreet::report {

std::string banners(const Declared& declared, bool is_public);
std::string title(const Declared& declared, const Observed* observed);
std::string classes(const Declared& declared);  // of a corpus
std::string headline(const Declared& declared, const Observed* observed);
std::string figures(const Declared& declared, const Observed* observed);  // figures.cpp
std::string guarantees(const Declared& declared, bool is_public);
std::string set_up(const Declared& declared);
std::string noise(const Declared& declared);
std::string held_out(const Observed& observed);
std::string happenings(const Observed& observed);
std::string configuration(const Declared& declared, bool is_public);
std::string provenance(const Declared& declared, const Observed* observed);
std::string ledger_section(const LedgerView& view);  // ledger_section.cpp
std::string ledger_withheld();                       // instead: only that there is a ledger

// heading, body: HTML.
std::string section(std::string_view id, std::string_view heading, std::string_view body);

}  // namespace discreet::report
