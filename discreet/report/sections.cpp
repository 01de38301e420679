#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "discreet/base/text/rounded_text.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/report/plot.h"
#include "discreet/report/sections_impl.h"
#include "discreet/report/words_impl.h"

namespace discreet::report {
namespace {

std::string list(const std::vector<std::string>& items) {
  std::string out = "<ul>\n";
  for (const std::string& item : items) out += "<li>" + item + "</li>\n";
  return out + "</ul>\n";
}

// key, value: HTML.
std::string row(std::string_view key, std::string_view value) {
  return fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", key, value);
}

std::string facts(std::string_view caption, std::string_view rows) {
  return fmt::format(
      "<div class=\"panel\"><table class=\"facts\">\n<caption>{}</caption>\n<tbody>\n{}</tbody>\n"
      "</table></div>\n",
      caption, rows);
}

std::string code(std::string_view text) { return "<code>" + escape(text) + "</code>"; }

std::string card(std::string_view name, std::string_view kind, std::string_view value,
                 std::string_view note, bool is_void = false) {
  return fmt::format(
      "<div class=\"card{}\"><dt>{}</dt><dd><p class=\"{}\">{}</p><p>{}</p></dd></div>\n",
      is_void ? " void" : "", name, kind, value, note);
}

std::string epsilon_card(const Declared& declared) {
  const Claim& claim = declared.claim;
  const bool is_void = !declared.not_private.empty();
  std::string note =
      claim.lower ? fmt::format("certified between {} and {}; budget {}", brief_down(*claim.lower),
                                brief_up(claim.upper), declared.config.privacy.target_epsilon)
                  : std::string("of the plan or the budget; see below");
  if (is_void) note = "not a guarantee: the run is not private";
  return card("Privacy loss ε", "big", "≤ " + brief_up(claim.upper), note, is_void);
}

std::string accuracy_card(const Observed& observed) {
  if (!observed.accuracy) return "";
  return card("Accuracy", "big", fmt::format("{:.2f}%", 100 * *observed.accuracy),
              observed.accuracy_is_held_out
                  ? "on held-out records, measured without noise; they have no guarantee, and "
                    "accuracy on other data may be lower"
                  : "on the training records, measured without noise; accuracy on new records "
                    "will differ");
}

bool is_governed(const Declared& declared) { return declared.config.corpus.policy.has_value(); }

std::string steps_card(const Declared& declared) {
  const std::string planned =
      declared.planned_steps ? grouped(*declared.planned_steps) + " planned" : "no number planned";
  if (!declared.steps)
    return declared.planned_steps ? card("Steps", "big", grouped(*declared.planned_steps),
                                         "planned; the number of completed steps is confidential")
                                  : "";
  return card("Steps", "big", grouped(*declared.steps), planned);
}

}  // namespace

std::string section(std::string_view id, std::string_view heading, std::string_view body) {
  return fmt::format("<section aria-labelledby=\"{0}\">\n<h2 id=\"{0}\">{1}</h2>\n{2}</section>\n",
                     id, heading, body);
}

std::string banners(const Declared& declared, bool is_public) {
  std::string out;
  if (!declared.not_private.empty()) {
    std::vector<std::string> reasons;
    for (const std::string& reason : declared.not_private) reasons.push_back(escape(reason));
    out +=
        "<div class=\"banner alarm\" role=\"alert\"><div><h2>Not private</h2>"
        "<p>This run gives no privacy to anyone, for these reasons:</p>" +
        list(reasons) + "</div></div>\n";
  }
  if (!declared.sealed && declared.not_private.empty())
    out += fmt::format(
        "<div class=\"banner alarm\" role=\"alert\"><div><h2>Seal not verified</h2><p>{}{}. "
        "It "
        "was not checked that configuration, trace and model are those of the run: anyone who can "
        "write to the run's directory may have changed the numbers of this page.</p></div></div>\n",
        static_cast<char>(std::toupper(static_cast<unsigned char>(declared.not_sealed[0]))),
        escape(declared.not_sealed.substr(1)));
  if (is_public)
    out +=
        "<div class=\"banner public\" role=\"note\"><div><strong>Public report.</strong> It "
        "contains only what was declared or scheduled in advance. Nothing on it depends on the "
        "records.</div></div>\n";
  else
    out +=
        "<div class=\"banner\" role=\"note\"><div><strong>Confidential.</strong> This page "
        "contains values that depend on the records and have no noise. To share results, create "
        "a report without them: <code>discreet report --public</code>.</div></div>\n";
  return out;
}

std::string title(const Declared& declared, const Observed* observed) {
  const bool as_planned =
      declared.ended == Ended::kCompleted || declared.ended == Ended::kBudgetReached;
  return fmt::format(
      "<header>\n<h1>Privacy report</h1>\n<p>{}<span class=\"chip{}\">{}</span></p>\n</header>\n",
      observed == nullptr ? "" : "Run " + code(observed->name) + " · ", as_planned ? "" : " odd",
      status_word(declared.ended));
}

std::string headline(const Declared& declared, const Observed* observed) {
  const Claim& claim = declared.claim;
  std::string cards = epsilon_card(declared);
  cards +=
      card("Remainder δ", "big", scientific(claim.delta),
           claim.delta > 0 && 1 / claim.delta < 1e15
               ? fmt::format("1 in {}",
                             grouped(static_cast<std::uint64_t>(std::llround(1 / claim.delta))))
               : std::string());
  cards += card("Between data sets with", "words", neighbours(claim.adjacency),
                "adjacency " + code(accounting::to_string(claim.adjacency)));
  const std::string accuracy = observed == nullptr ? "" : accuracy_card(*observed);
  cards += accuracy.empty() ? steps_card(declared) : accuracy;
  return section("promise", "What is promised to one person",
                 fmt::format("<div class=\"statement\">\n{}</div>\n<dl class=\"cards\">\n{}</dl>\n"
                             "<p class=\"small\">{}</p>\n",
                             statement(declared), cards, basis(declared)));
}

std::string classes(const Declared& declared) {
  if (!is_governed(declared) || declared.classes.empty()) return "";
  std::string rows;
  for (const NoiseClass& each : declared.classes)
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{:.6g}</td></tr>\n",
        escape(each.name), brief_up(each.epsilon), scientific(each.delta), grouped(each.most_uses),
        each.noise_multiplier);
  return section(
      "classes", "What one contribution spends, by class",
      fmt::format(
          "<div class=\"panel\"><p class=\"small\">ε is what one contribution spends in this run "
          "if "
          "it is used as often as it allows. The standard deviation of the noise of one use is σ "
          "times the bound of the class.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-labelledby=\"classes\"><table class=\"numbers\">\n<caption class=\"unseen\">What "
          "one "
          "contribution spends</caption>\n<thead><tr><th scope=\"col\">Class</th><th "
          "scope=\"col\">ε at most</th><th scope=\"col\">at δ</th><th scope=\"col\">Maximum "
          "uses</th><th scope=\"col\">Multiplier σ</th></tr></thead>\n<tbody>\n{}</tbody>\n"
          "</table></div></div>\n",
          rows));
}

std::string guarantees(const Declared& declared, bool is_public) {
  return section("limits", "What is guaranteed, and what is not",
                 "<div class=\"both\">\n<div class=\"panel yes\"><h3>Guaranteed</h3>" +
                     list(guaranteed(declared)) +
                     "</div>\n<div class=\"panel no\"><h3>Not guaranteed</h3>" +
                     list(not_guaranteed(declared, is_public)) + "</div>\n</div>\n");
}

std::string set_up(const Declared& declared) {
  const DpConfig& dp = declared.config.privacy;
  std::string rows;
  if (declared.planned_steps) rows += row("Planned steps", grouped(*declared.planned_steps));
  if (declared.steps) rows += row("Completed steps", grouped(*declared.steps));
  rows += row("Budget", fmt::format("ε ≤ {} at δ = {}; warning above {:.6g}", dp.target_epsilon,
                                    scientific(dp.target_delta),
                                    dp.target_epsilon * (1 - dp.safety_budget_reserve)));
  rows += row("Sampling", code(spelling(dp.sampling_mode)));
  if (dp.sampling_rate) rows += row("Sampling rate q", fmt::format("{:.6g}", *dp.sampling_rate));
  if (dp.effective_batch_size)
    rows += row("Expected batch", grouped(*dp.effective_batch_size) + " records");
  if (dp.declared_size) rows += row("Declared records", grouped(*dp.declared_size) + ", public");
  rows += row("Accountant", code(spelling(dp.accountant)));
  if (is_governed(declared)) {
    rows += row("Clipping", "by the bounds of each class of contributions");
    rows += row("Noise", code(spelling(dp.noise_family)) + ", set by the corpus policy");
  } else {
    rows += row("Clipping", fmt::format("{}, bound {:.6g}{}", code(spelling(dp.clip_strategy)),
                                        dp.clip_norm, dp.clip_norm_adaptive ? " initially" : ""));
    rows += row("Noise", code(spelling(dp.noise_family)) +
                             (dp.mode == ScheduleMode::kFixed
                                  ? fmt::format(", multiplier {:.6g}", dp.noise_multiplier)
                                  : ", multiplier scheduled by " + code(spelling(dp.mode))));
  }
  rows += row("Randomness", dp.secure ? "cryptographic, under a secret key"
                                      : "<strong>from a public seed</strong>");
  return section("set-up", "How it was trained",
                 facts("Declared before the run, independent of the records.", rows));
}

std::string noise(const Declared& declared) {
  const DpConfig& dp = declared.config.privacy;
  if (is_governed(declared) || declared.parts.empty()) return "";
  const double batch = static_cast<double>(dp.effective_batch_size.value_or(0));
  std::string rows;
  for (const NoisePart& part : declared.parts) {
    const double deviation = part.noise_multiplier * part.clip_norm;
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{:.6g}</td><td>{:.6g}</td><td>{:.4g}</td><td>{}</td>"
        "</tr>\n",
        escape(part.name), part.clip_norm, part.noise_multiplier, deviation,
        batch > 0 ? fmt::format("{:.4g}", deviation / batch) : "–");
  }
  return section(
      "noise", "Noise on each part of the model",
      fmt::format("<div class=\"panel scroll\" tabindex=\"0\" role=\"region\" "
                  "aria-labelledby=\"noise\"><table class=\"numbers\">\n"
                  "<caption>Standard deviation of the noise on every coordinate, at the first "
                  "step.</caption>\n<thead><tr><th scope=\"col\">Part</th><th scope=\"col\">Clip "
                  "bound C</th><th scope=\"col\">Multiplier σ</th><th scope=\"col\">On the sum, "
                  "σC</th><th scope=\"col\">On the mean, σC/B</th></tr></thead>\n<tbody>\n{}"
                  "</tbody>\n</table></div>\n",
                  rows));
}

std::string held_out(const Observed& observed) {
  if (!observed.held_out) return "";
  const HeldOut& h = *observed.held_out;
  const auto percent = [](const std::optional<double>& x) {
    return x ? fmt::format("{:.1f}%", 100 * *x) : std::string("–");
  };
  std::string body;
  if (h.majority_accuracy)
    body += fmt::format("<p>Always answering {} would be right for {}.</p>\n",
                        code(h.majority_class), percent(h.majority_accuracy));
  if (h.rmse)
    body += fmt::format("<p>Root mean squared error {:.4g}, in the unit of the label{}.</p>\n",
                        *h.rmse, h.r2 ? fmt::format("; R² {:.4f}", *h.r2) : "");
  std::string rows;
  for (const HeldOut::Class& own : h.classes)
    rows += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        escape(own.name), grouped(own.records), percent(own.recall),
                        percent(own.precision));
  if (!rows.empty())
    body += fmt::format(
        "<div class=\"panel scroll\" tabindex=\"0\" role=\"region\" "
        "aria-labelledby=\"held-out\"><table class=\"numbers\">\n<caption>By class. Recall: of "
        "its records, the part that the model finds. Precision: of the records given this class, "
        "the part that belongs to it.</caption>\n<thead><tr><th scope=\"col\">Class</th><th "
        "scope=\"col\">Records</th><th scope=\"col\">Recall</th><th scope=\"col\">Precision</th>"
        "</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
        rows);
  return section("held-out", "On held-out records",
                 "<p class=\"small\">Measured without noise: confidential. From held_out.json, "
                 "which the seal does not cover.</p>\n" +
                     body);
}

std::string happenings(const Observed& observed) {
  if (observed.happenings.empty() && observed.zeroed_records == 0 && observed.skipped_rows == 0)
    return "";
  std::string body;
  if (observed.skipped_rows > 0)
    body += fmt::format("<p>{} rows of the data could not be read and were left out.</p>\n",
                        grouped(observed.skipped_rows));
  if (observed.zeroed_records > 0)
    body += fmt::format("<p>{} gradients were not finite and counted as zero.</p>\n",
                        grouped(observed.zeroed_records));
  if (!observed.happenings.empty()) {
    // A run above its warning line warns at every step: show only a few.
    constexpr std::size_t kShown = 12;
    const std::size_t shown = std::min(kShown, observed.happenings.size());
    std::string rows;
    for (std::size_t i = 0; i < observed.happenings.size(); ++i) {
      const Happening& each = observed.happenings[i];
      const bool is_routine = each.kind == "warning" && i >= shown;
      if (is_routine) continue;
      rows += fmt::format("<tr><th scope=\"row\">step {}</th><td>{}: {}</td></tr>\n",
                          grouped(each.step), escape(each.kind), escape(each.text));
    }
    std::uint64_t hidden = observed.more_happenings;
    for (std::size_t i = shown; i < observed.happenings.size(); ++i)
      if (observed.happenings[i].kind == "warning") ++hidden;
    body += facts(hidden == 0 ? std::string("Warnings, failures and resumptions in the trace.")
                              : fmt::format("Warnings, failures and resumptions in the trace; {} "
                                            "more warnings are not shown.",
                                            grouped(hidden)),
                  rows);
  }
  return section("events", "What happened", body);
}

std::string configuration(const Declared& declared, bool is_public) {
  // The section `data` names files and columns.
  constexpr std::array<std::string_view, 4> kPublic = {"security:", "model:", "optimizer:", "run:"};
  const std::string yaml = write_yaml(without_places(declared.config));
  std::string shown;
  bool is_shown = !is_public;
  for (std::size_t begin = 0; begin < yaml.size();) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size() - 1) + 1;
    const std::string_view line = std::string_view(yaml).substr(begin, end - begin);
    if (is_public && line[0] != ' ')
      is_shown = std::ranges::any_of(
          kPublic, [&](std::string_view section) { return line.starts_with(section); });
    if (is_shown) shown += line;
    begin = end;
  }
  return section(
      "configuration", "Configuration",
      fmt::format("<details class=\"panel\"><summary>Every setting, as resolved{}{}</summary>"
                  "<pre tabindex=\"0\">{}</pre></details>\n",
                  is_public ? ", except the section that names data" : "",
                  is_governed(declared)
                      ? "; clipping.norm and noise_multiplier have no effect in a "
                        "run of a corpus"
                      : "",
                  escape(shown)));
}

std::string provenance(const Declared& declared, const Observed* observed) {
  std::string rows = row("Specification", escape(declared.specification));
  rows += row("Configuration", code(declared.config_hash));
  rows += row("Model layout", code(declared.layout_hash));
  if (declared.model_digest) rows += row("Model", code(*declared.model_digest));
  rows += row("Seal", declared.sealed
                          ? "verified with the run's key: the run wrote this configuration, "
                            "trace and model"
                          : "<strong>not verified</strong>: " + escape(declared.not_sealed));
  if (observed != nullptr)
    rows += row("Trace", fmt::format("{}<br>digest of the last of {} lines; the chain is intact",
                                     code(observed->trace_head), grouped(observed->lines)));
  return section("provenance", "Versions and hashes", facts("SHA-256, hexadecimal.", rows));
}

}  // namespace discreet::report
