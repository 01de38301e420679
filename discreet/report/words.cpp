#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "discreet/base/text/rounded_text.h"
#include "discreet/report/plot.h"
#include "discreet/report/words_impl.h"

namespace discreet::report {

using accounting::Adjacency;

namespace {

std::string with_power(const std::string& text) {
  const std::size_t at = text.find('e');
  const int power = std::stoi(text.substr(at + 1));
  std::string digits = text.substr(0, at);
  if (digits.find('.') != std::string::npos) {
    while (digits.back() == '0') digits.pop_back();
    if (digits.back() == '.') digits.pop_back();
  }
  return fmt::format("{}10<sup>{}{}</sup>", digits == "1" ? "" : digits + " × ",
                     power < 0 ? "−" : "", std::abs(power));
}

// As many digits as it takes not to state less than x.
std::string scientific_up(double x) {
  int digits = 3;
  while (digits < 17 && std::stod(fmt::format("{:.{}e}", x, digits)) < x) ++digits;
  return x == 0 ? "0" : with_power(fmt::format("{:.{}e}", x, digits));
}

}  // namespace

std::string scientific(double x) {
  if (x == 0) return "0";
  if (x >= 1e-3 && x < 1e6) return fmt::format("{}", x);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x, std::chars_format::scientific);
  return with_power({digits, end.ptr});
}

std::string grouped(std::uint64_t n) {
  if (n < 1000) return fmt::format("{}", n);
  return fmt::format("{},{:03}", grouped(n / 1000), n % 1000);
}

std::string neighbours(Adjacency adjacency) {
  switch (adjacency) {
    case Adjacency::kAddRemove: return "one record added or removed";
    case Adjacency::kZeroOut: return "one record blanked out";
    case Adjacency::kReplaceOne: return "one record exchanged";
  }
  return "?";
}

std::string status_word(Ended ended) {
  switch (ended) {
    case Ended::kCompleted: return "Completed";
    case Ended::kBudgetReached: return "Budget reached";
    case Ended::kInterrupted: return "Interrupted";
    case Ended::kStopped: return "Stopped early";
    case Ended::kFailed: return "Failed";
    case Ended::kUnfinished: return "Unfinished";
  }
  return "?";
}

double right_guesses_percent(double epsilon, double delta) {
  const double share = 1 - (1 - delta) / (1 + std::exp(epsilon));
  const double fine = share < 0.99 ? 10 : 1000;  // near certainty the digits that say how near
  const double product = share * 100 * fine;
  double up = std::ceil(product);
  if (epsilon > 0 && up - product < 1e-9) up += 1;  // what rounding took may have been above
  return std::min(100.0, up / fine);
}

namespace {

// What "without your record" is.
std::string alternative(Adjacency adjacency) {
  switch (adjacency) {
    case Adjacency::kAddRemove: return "had that person’s record never been in the data";
    case Adjacency::kZeroOut: return "had that person’s record been blanked out";
    case Adjacency::kReplaceOne: return "had that person’s record been anyone else’s";
  }
  return "?";
}

std::string question(Adjacency adjacency) {
  switch (adjacency) {
    case Adjacency::kAddRemove: return "whether that record was used";
    case Adjacency::kZeroOut: return "whether that record was used or blanked out";
    case Adjacency::kReplaceOne: return "which of two records was used";
  }
  return "?";
}

std::string formal_neighbours(Adjacency adjacency) {
  switch (adjacency) {
    case Adjacency::kAddRemove: return "that differ by adding or removing one record";
    case Adjacency::kZeroOut:
      return "that differ in one record, whose contribution is zero in one of them";
    case Adjacency::kReplaceOne: return "of equal size that differ in one record";
  }
  return "?";
}

std::string factor(double epsilon) {
  const double value = std::exp(epsilon);
  return value < 1e6 ? round_up(value * (1 + 1e-15), value < 10     ? 2
                                                     : value < 1000 ? 1
                                                                    : 0)
                     : scientific_up(std::nextafter(value, 1e308));
}

}  // namespace

std::string statement(const Declared& declared) {
  if (!declared.not_private.empty())
    return "<p class=\"lead\">This run promises nothing. It was executed in a way that gives no "
           "privacy, and nothing it released may be treated as private. The numbers below show "
           "what the same settings would have promised.</p>";
  const Claim& claim = declared.claim;
  const double right = right_guesses_percent(claim.upper, claim.delta);
  std::string out = fmt::format(
      "<p class=\"lead\">What this model reveals about any one person is limited. Whatever "
      "someone concludes from it, they could also have concluded {}. The probability of that "
      "differs by a factor of at most {} (that is e<sup>ε</sup>), up to a remainder of "
      "δ&nbsp;=&nbsp;{}.</p>\n",
      alternative(claim.adjacency), factor(claim.upper), scientific(claim.delta));
  out += fmt::format(
      "<p>As a game: someone knows every other record and studies the model. They must then guess "
      "{}. "
      "They are right at most {:.5g} times in 100; blind guessing is right 50 "
      "times.{}</p>\n",
      question(claim.adjacency), right,
      right < 99
          ? ""
          : " At this ε that is a weak limit on the strongest conceivable attack. Attacks on "
            "real data usually achieve less, but nothing here proves that they must.");
  out += fmt::format(
      "<p class=\"formal\">For the auditor: everything this run released is (ε, δ)-differentially "
      "private with ε&nbsp;≤&nbsp;{} and δ&nbsp;=&nbsp;{}. For all data sets D, D′ {}, and "
      "every set S of outcomes, "
      "<span class=\"formula\">P[M(D)&nbsp;∈&nbsp;S] ≤ e<sup>ε</sup>&nbsp;P[M(D′)&nbsp;∈&nbsp;S] + "
      "δ</span>.</p>\n",
      brief_up(claim.upper), scientific(claim.delta), formal_neighbours(claim.adjacency));
  return out;
}

std::string basis(const Declared& declared) {
  switch (declared.ended) {
    case Ended::kCompleted: return "The run took all its planned steps.";
    case Ended::kBudgetReached:
      return "The run stopped by itself: one more step would have exceeded the budget.";
    case Ended::kInterrupted:
      return "The run was interrupted. The time of that may depend on the data, so ε is not the "
             "cost of the executed steps: it is what the whole planned run could have spent.";
    case Ended::kStopped:
      return "The run stopped before its planned end, and the reason is not recorded. It may "
             "depend on the data, so ε is the whole budget, not the cost of the executed steps.";
    case Ended::kFailed:
      return "The run failed. The time of that may depend on the data, so ε is the whole "
             "budget, not the cost of the executed steps.";
    case Ended::kUnfinished:
      return "The run has not ended: it is still running, or it was killed. ε is the whole "
             "budget, not the cost of the steps so far.";
  }
  return "?";
}

std::vector<std::string> guaranteed(const Declared& declared) {
  if (!declared.not_private.empty()) return {"Nothing: see the reasons at the top."};
  return {
      "The promise above holds for every training record, against everyone, whatever else they "
      "know.",
      "It covers everything that the run released: every noisy gradient, every version of the "
      "model, and the final model.",
      "Whatever is computed from the model later, such as predictions, costs no further privacy.",
      fmt::format("The upper end of ε is a certified bound, never rounded down. No step was "
                  "released that would have exceeded the budget of {}.",
                  declared.config.privacy.target_epsilon),
  };
}

namespace {

std::string several_records(const Declared& declared) {
  std::string out =
      "<strong>Several records of one person</strong> together are less protected than one: at "
      "this δ, ε can grow faster than their number. ";
  if (declared.groups.empty()) return out + "No ε is certified for them here.";
  out += "The certified bounds are";
  for (const GroupClaim& group : declared.groups)
    out += fmt::format("{} ε ≤ {} for {} records", &group == &declared.groups.front() ? "" : ",",
                       brief_up(group.epsilon), group.records);
  return out + ", comparing all of them present with all of them absent.";
}

}  // namespace

std::vector<std::string> not_guaranteed(const Declared& declared, bool is_public) {
  const DpConfig& dp = declared.config.privacy;
  std::vector<std::string> out = {
      "<strong>Held-out records</strong> have no guarantee: accuracy and loss on them are measured "
      "without noise.",
      "<strong>Hyper-parameters</strong> chosen on this data are not covered: other runs on it "
      "also spent privacy.",
      several_records(declared),
      "<strong>Facts about the whole population</strong> are what a model learns. They may apply "
      "to "
      "a person who never took part.",
      "<strong>Each gradient comes from one record alone</strong>: this is assumed. No layer may "
      "mix records.",
  };
  if (dp.adjacency == Adjacency::kZeroOut)
    out.emplace_back("<strong>The number of records</strong> is not protected.");
  if (dp.adjacency == Adjacency::kReplaceOne)
    out.emplace_back("<strong>The number of records</strong> is public.");
  if (!has_grid(dp.noise_family))
    out.emplace_back(
        "<strong>The last bits of floating-point numbers</strong>: noise is drawn in binary64, and "
        "the proof is for real numbers.");
  if (dp.secure)
    out.emplace_back(
        "<strong>Anyone with <code>secret.key</code></strong> can remove the noise. Keep it secret "
        "or "
        "destroy it.");
  if (is_public)
    out.emplace_back(
        "<strong>The authenticity of this page</strong> is not guaranteed, because the page is not "
        "signed. Compare its hashes with those of the run.");
  else if (declared.sealed)
    out.emplace_back(
        "<strong>That this is the latest state of the run</strong>: an earlier sealed state of the "
        "same run can be restored as a whole. Compare the last digest with one kept elsewhere.");
  else
    out.emplace_back(
        "<strong>The authenticity of the trace</strong> is not guaranteed, because its seal was "
        "not "
        "verified. Anyone who can rewrite all of it can rewrite its chain.");
  return out;
}

}  // namespace discreet::report
