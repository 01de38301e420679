#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "discreet/base/bytes.h"
#include "discreet/ledger/note.h"
#include "discreet/report/ledger_view.h"
#include "discreet/report/plot.h"
#include "discreet/report/sections_impl.h"
#include "discreet/report/words_impl.h"

// Every cell that says what entries say carries its name in `data-is`; the script of the page
// derives the same text from the entries (facts() in ledger.js) and compares.

namespace discreet::report {
namespace {

using namespace ledger;

std::string is(std::string_view name, std::string_view html) {
  return fmt::format("<td data-is=\"{}\">{}</td>", escape(name), html);
}

std::string epsilon(std::uint64_t micro) {
  return fmt::format("{}.{:06}", micro / 1'000'000, micro % 1'000'000);
}

std::string day(std::uint64_t seconds) {
  if (seconds >= 253'402'300'800) return "after 9999";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string_view meaning(std::string_view reason) {
  static const std::map<std::string_view, std::string_view> kMeanings = {
      {"NO_ATTESTATION", "there was no signature"},
      {"MALFORMED", "descriptor or signature could not be read"},
      {"UNTRUSTED_KEY", "the policy does not know the key, or not for this class"},
      {"REVOKED_KEY", "the key was revoked"},
      {"BAD_SIGNATURE", "the signature does not fit"},
      {"UNKNOWN_CLASS", "the policy has no such class"},
      {"OUTSIDE_VALIDITY", "not valid at the time, or for too long"},
      {"OTHER_CORPUS", "signed for another corpus, or for none"},
      {"BELOW_FLOOR", "asked for less protection than the policy demands"},
      {"WITHDRAWN", "it had been withdrawn"},
      {"DUPLICATE", "the same contributor had given it before"}};
  const auto at = kMeanings.find(reason);
  return at == kMeanings.end() ? "" : at->second;
}

bool has_plans(const LedgerView& view) { return view.header.schema >= 2; }

// explanation: HTML. It stands outside of what scrolls on a narrow screen.
std::string table(std::string_view id, std::string_view name, std::string_view explanation,
                  std::initializer_list<std::string_view> columns, std::string_view rows) {
  std::string head;
  for (const std::string_view column : columns)
    head += fmt::format("<th scope=\"col\">{}</th>", column);
  return fmt::format(
      "<div class=\"panel\"><h3 id=\"ledger-{0}\">{1}</h3>\n<p class=\"small\">{2}</p>\n<div "
      "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"ledger-{0}\"><table "
      "class=\"numbers\">\n<caption class=\"unseen\">{1}</caption>\n<thead><tr>{3}</tr></thead>\n"
      "<tbody>\n{4}</tbody>\n</table></div></div>\n",
      id, name, explanation, head, rows);
}

// " The first 100 of 345 are shown."
std::string shown(std::uint64_t all) {
  return all <= kMostLedgerRows ? ""
                                : fmt::format(
                                      " The first {} of {} are shown; <code>discreet "
                                      "ledger show</code> lists all.",
                                      kMostLedgerRows, grouped(all));
}

std::string contract(const LedgerView& view) {
  const Header& header = view.header;
  const auto row = [](std::string_view what, std::string_view cell) {
    return fmt::format("<tr><th scope=\"row\">{}</th>{}</tr>\n", what, cell);
  };
  std::string stewards;
  for (const RawKey& key : header.stewards)
    stewards += fmt::format("{}{}", stewards.empty() ? "" : " ", to_hex(key));
  std::string rows = row("Name", is("origin", escape(header.origin)));
  rows += row("Entries", is("entries", grouped(view.size)));
  rows += row("Signed checkpoints", is("checkpoints", grouped(view.checkpoints)));
  rows += row("Signed by", is("key", to_hex(header.key)));
  if (!stewards.empty()) rows += row("Stewards, who may withdraw", is("stewards", stewards));
  rows += row("ε is derived by", is("accountant", escape(header.accountant)));
  rows += row("at δ", is("delta", scientific(static_cast<double>(header.delta) / kAtto)));
  rows += row("between data sets with", is("adjacency", neighbours(header.adjacency)));
  rows += row("Policy", is("policy", to_hex(header.policy)));
  return fmt::format(
      "<div class=\"panel\"><table class=\"facts\">\n<caption>The contract: the first entry of "
      "the ledger, by which all others are checked.</caption>\n<tbody>\n{}</tbody>\n"
      "</table></div>\n",
      rows);
}

std::string classes(const LedgerView& view) {
  // What a browser cannot recompute stands outside of the table that it verifies.
  std::string rows, withdrawn;
  for (const auto& [name, c] : view.classes) {
    const std::string key = "class/" + name + "/";
    rows +=
        fmt::format("<tr><th scope=\"row\">{}</th>{}{}{}{}</tr>\n", escape(name),
                    is(key + "spent", epsilon(c.most_spent)),
                    is(key + "contributions", grouped(c.contributions)),
                    is(key + "withdrawn", grouped(c.withdrawn)), is(key + "uses", grouped(c.uses)));
    if (c.withdrawn_spent != 0)
      withdrawn += fmt::format("{} {}: ε ≤ {}", withdrawn.empty() ? "" : ";", escape(name),
                               epsilon(c.withdrawn_spent));
  }
  if (rows.empty()) return "<p>The ledger contains no contributions.</p>\n";
  return table(
      "classes", "Contributions",
      "Admitted contributions by class. ε is the most that any one contribution of the class has "
      "spent over all runs that share the ledger" +
          std::string(has_plans(view)
                          ? ". Each run counts with all steps that it planned, however it "
                            "ended. This assumes that the number of runs was fixed in advance."
                          : ", if each run ended as planned.") +
          (withdrawn.empty() ? std::string()
                             : " For a withdrawn contribution it is the cost of all uses that it "
                               "allowed, because the time of a withdrawal may depend on earlier "
                               "releases:" +
                                   withdrawn + "."),
      {"Class", "ε at most", "Admitted", "Withdrawn since", "Uses in epochs"}, rows);
}

std::string refusals(const LedgerView& view) {
  std::string rows;
  for (const auto& [reason, count] : view.refusals)
    rows += fmt::format("<tr><th scope=\"row\">{}</th>{}<td>{}</td></tr>\n", escape(reason),
                        is("refused/" + reason, grouped(count)), meaning(reason));
  if (rows.empty()) return "";
  return table("refusals", "Refusals",
               "Contributions that the gate rejected, by reason. Their identity is not recorded.",
               {"Reason", "Contributions", "Meaning"}, rows);
}

std::string epochs(const LedgerView& view) {
  constexpr std::string_view kSamplers[] = {"none",       "Poisson",        "truncated Poisson",
                                            "fixed size", "balls and bins", "shuffled epoch"};
  std::string rows;
  for (const LedgerView::Epochs& e : view.epochs) {
    const Terms& t = e.terms;
    const std::string key = fmt::format("epochs/{}/", e.position);
    const auto span = [](std::string first, const std::string& last) {
      return first == last ? first : first + " to " + last;
    };
    rows += fmt::format(
        "<tr>{}{}{}{}{}{}{}{}{}{}</tr>\n", is(key + "class", escape(t.admissibility_class)),
        is(key + "spent", epsilon(e.most_spent)),
        is(key + "epochs", span(grouped(t.epoch), grouped(e.last_epoch))),
        is(key + "steps", grouped(e.steps)),
        is(key + "planned", has_plans(view) ? grouped(t.planned_steps) : "unknown"),
        is(key + "contributions", grouped(e.most_uses)),
        is(key + "deviation", scientific(static_cast<double>(t.deviation) / kNano)),
        is(key + "sampler", t.sampler < 6 ? kSamplers[t.sampler] : "unknown"),
        is(key + "dates", span(day(t.as_of), day(e.last_as_of))), is(key + "run", escape(t.run)));
  }
  if (rows.empty()) return "<p>The ledger contains no epochs: nothing was trained.</p>\n";
  return table(
      "epochs", "Epochs",
      "The epochs of a run and a class, in one row while their terms are the same. An epoch is "
      "reserved before its first step, for every contribution of the class, sampled or not. "
      "ε is the most that one of them has spent " +
          std::string(has_plans(view) ? "with all steps that the run planned."
                                      : "after the last epoch.") +
          std::string(view.summarised > 0 ? " Contributions summarised since are not counted."
                                          : "") +
          shown(view.all_epochs),
      {"Class", "ε at most", "Epochs", "Steps", "Planned by the run", "Contributions",
       "Noise, standard deviation", "Sampling", "Dates (end of the hour)", "Run"},
      rows);
}

std::string withdrawals(const LedgerView& view) {
  std::string rows;
  for (const auto& [position, w] : view.withdrawals) {
    const std::string key = fmt::format("withdrawal/{}/", position);
    const bool steward = std::ranges::binary_search(view.header.stewards, w.key);
    rows += fmt::format(
        "<tr>{}{}{}{}{}</tr>\n", is(key + "entry", grouped(position)),
        is(key + "date", day(w.time)), is(key + "by", steward ? "a steward" : "its contributor"),
        is(key + "reason", escape(w.reason)), is(key + "descriptor", to_hex(w.descriptor)));
  }
  if (rows.empty()) return "";
  return table(
      "withdrawals", "Withdrawals",
      "After its entry, nothing uses the contribution. Models trained earlier do not change." +
          shown(view.all_withdrawals),
      {"Entry", "Signed on", "By", "Reason given", "Descriptor"}, rows);
}

std::string releases(const LedgerView& view) {
  std::string rows;
  for (const auto& [position, r] : view.releases) {
    const std::string key = fmt::format("release/{}/", position);
    rows += fmt::format("<tr>{}{}{}</tr>\n", is(key + "entry", grouped(position)),
                        is(key + "run", escape(r.run)), is(key + "manifest", to_hex(r.manifest)));
  }
  if (rows.empty()) return "";
  return table(
      "releases", "Releases",
      "Released models, identified by the SHA-256 of their manifest." + shown(view.all_releases),
      {"Entry", "Run", "Manifest"}, rows);
}

std::string summarised(const LedgerView& view) {
  std::string rows;
  for (const ClassTotal& c : view.summarised_classes) {
    const std::string key = "summarised/" + c.admissibility_class + "/";
    rows +=
        fmt::format("<tr><th scope=\"row\">{}</th>{}{}{}</tr>\n", escape(c.admissibility_class),
                    is(key + "contributions", grouped(c.contributions)),
                    is(key + "uses", grouped(c.uses)), is(key + "spent", epsilon(c.most_spent)));
  }
  if (rows.empty()) return "";
  return table(
      "summarised", "Summarised",
      "The contents of these entries were deleted after their retention period; their hashes "
      "remain in the tree. ε is as recorded then; it can no longer be recomputed.",
      {"Class", "Contributions", "Uses in epochs", "ε at most"}, rows);
}

std::string check(std::string_view id, std::string_view what, std::string_view why) {
  return fmt::format(
      "<tr id=\"check-{}\" data-verdict=\"COULD NOT CHECK\"><th scope=\"row\">{}</th><td><strong "
      "class=\"verdict\">COULD NOT CHECK</strong> <span class=\"why\">{}</span></td></tr>\n",
      id, what, why);
}

std::string checks(const LedgerView& view) {
  constexpr std::string_view kIdle = "the script of this page has not run";
  std::string rows = check("signed", "The entries are those that the key above signed", kIdle);
  rows += check("order", "Epochs are in order, and nothing is used after its withdrawal", kIdle);
  rows += check("tables", "The tables below say what the entries say", kIdle);
  rows += check("key", "The key is the one you expect", "paste it below");
  rows += check("past", "Nothing was rolled back or rewritten since a checkpoint that you kept",
                "paste it below");
  rows += check("spends", "Every ε follows from the recorded events, and contributors signed",
                "not in a browser: use the command below");
  const std::string note_key =
      NoteKey{view.header.origin, admission::PublicKey::from_bytes(view.header.key)}.to_text();
  return fmt::format(
      "<div class=\"panel\"><table class=\"facts checks\" id=\"checks\">\n<caption>Checked by "
      "this page, in your browser, from the entries it contains. Nothing is sent or "
      "loaded.</caption>\n<tbody aria-live=\"polite\">\n{}</tbody>\n</table>\n"
      "<div class=\"paste\"><p><label for=\"expected-key\">The public key you expect</label>"
      "<textarea id=\"expected-key\" rows=\"2\" spellcheck=\"false\" autocomplete=\"off\" "
      "placeholder=\"64 hexadecimal digits, PEM, or name+id+base64\"></textarea></p>\n"
      "<p><label for=\"expected-note\">A checkpoint you kept, such as ledger.note</label>"
      "<textarea id=\"expected-note\" rows=\"2\" spellcheck=\"false\" autocomplete=\"off\" "
      "placeholder=\"the signed note, all its lines\"></textarea></p></div>\n"
      "<details><summary>What these checks show, and what they do not</summary><ul>\n"
      "<li>A page is only as trustworthy as its source: anyone who can alter it can alter its "
      "script too. Take the key and the older checkpoint from elsewhere, not from this page. When "
      "it matters, check with a program that you trust.</li>\n"
      "<li>VERIFIED in the first line means that the entries have signatures of the key shown "
      "above. It does not show whose key that is; to check that, paste the key you expect.</li>\n"
      "<li>One copy does not show whether everyone sees the same ledger: compare "
      "checkpoints.</li>\n"
      "<li>Not checked here: every ε against its events, attestations and withdrawal signatures, "
      "and the other rules of the format. The full check needs the ledger's file: <code>discreet "
      "ledger verify LEDGER --public-key KEY --checkpoint NOTE</code>. It was run, without "
      "attestations, when this page was written.</li>\n"
      "<li>A ledger cannot show that a run followed its terms.</li>\n"
      "<li>This page keeps its entries: those that the ledger summarises later remain in copies "
      "of the page.</li>\n</ul></details>\n"
      "<details><summary>The last checkpoint, to keep and compare later</summary><pre "
      "class=\"one\" tabindex=\"0\">{}</pre><p class=\"small\">Signed by <code>{}</code></p>"
      "</details></div>\n",
      rows, escape(view.note), escape(note_key));
}

}  // namespace

std::string ledger_section(const LedgerView& view) {
  return section(
      "ledger", "The ledger: who contributed, under which promise, and what it cost",
      "<p class=\"statement\">A ledger records every admitted contribution, every epoch that used "
      "it, and the cost, in entries that nobody can alter or remove later without being "
      "detected. It contains only declared, scheduled and derived values.</p>\n" +
          contract(view) + checks(view) + classes(view) + refusals(view) + epochs(view) +
          withdrawals(view) + releases(view) + summarised(view) +
          fmt::format("<script type=\"application/octet-stream\" id=\"ledger-data\">{}</script>\n",
                      to_base64(view.embedded)));
}

std::string ledger_withheld() {
  return section(
      "ledger", "The ledger",
      "<p class=\"statement\">This run wrote to a ledger. It stopped before its planned end. "
      "The number of epochs reserved by then may depend on the records, so this page "
      "does not show them.</p>\n");
}

}  // namespace discreet::report
