#include "discreet/report/html.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/base/version.h"
#include "discreet/report/sections_impl.h"
#include "discreet/report/style_impl.h"
#include "discreet/report/words_impl.h"
#include "discreet/run/files.h"

namespace discreet::report {
namespace {

std::string base64(ByteView bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  out.resize(static_cast<std::size_t>(EVP_EncodeBlock(
      reinterpret_cast<unsigned char*>(out.data()), bytes.data(), static_cast<int>(bytes.size()))));
  return out;
}

// The policy admits this very style sheet and nothing else. A script that verifies the page will be
// admitted in the same way.
std::string head(bool is_public) {
  std::string style(kStyle);
  if (!is_public) style += kConfidentialStyle;
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<meta name=\"robots\" content=\"noindex\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>Privacy report{}</title>\n<style>{}</style>\n</head>\n<body>\n",
      base64(sha256(bytes_of(style))), is_public ? "" : " (confidential)", style);
}

// observed: none on the public page.
std::string page(const Declared& declared, const Observed* observed) {
  const bool is_public = observed == nullptr;
  std::string out = head(is_public);
  out += banners(declared, is_public);
  out += "<main>\n";
  out += title(declared, observed);
  out += headline(declared, observed);
  out += figures(declared, observed);
  out += guarantees(declared, is_public);
  out += set_up(declared);
  out += noise(declared);
  if (!is_public) out += happenings(*observed);
  out += configuration(declared, is_public);
  out += provenance(declared, observed);
  out += fmt::format(
      "<footer>Written by discreet {}. This page loads nothing and sends nothing.</footer>\n"
      "</main>\n</body>\n</html>\n",
      version());
  return out;
}

}  // namespace

std::string confidential_page(const RunSummary& summary) {
  return page(summary.declared, &summary.observed);
}

std::string public_page(const Declared& declared) {
  if (declared.ended == Ended::kFailed || declared.ended == Ended::kUnfinished)
    throw Error(ErrorCode::kInvalidInput, "report",
                fmt::format("the run is {}: when a run stops without its planned end may depend on "
                            "a record, so there is no public report of it; let it end, or resume "
                            "it, or make the confidential report",
                            to_string(declared.ended)));
  return page(declared, nullptr);
}

RunSummary write_report(const std::filesystem::path& run, bool is_public,
                        const std::filesystem::path& out) {
  RunSummary summary = summarize(run);
  const std::string text = is_public ? public_page(summary.declared) : confidential_page(summary);
  run::write_atomically(out, bytes_of(text),
                        is_public ? run::Access::kShared : run::Access::kOwner);
  return summary;
}

std::filesystem::path default_report(const std::filesystem::path& run, bool is_public) {
  return run / (is_public ? "report-public.html" : "report.html");
}

}  // namespace discreet::report
