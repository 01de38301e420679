// The pictures of the page.
#include <fmt/format.h>

#include <algorithm>

#include "discreet/base/text/rounded_text.h"
#include "discreet/report/plot.h"
#include "discreet/report/sections_impl.h"
#include "discreet/report/words_impl.h"

namespace discreet::report {
namespace {

std::vector<Plot::Point> points(const Series& series) {
  std::vector<Plot::Point> out;
  for (const Point& point : series) out.push_back({point.step, std::max(0.0, point.value)});
  return out;
}

// Rounded up: some curves are of upper bounds.
std::string range(const Plot::Curve& curve) {
  const auto [least, largest] = std::ranges::minmax(curve.points, {}, &Plot::Point::y);
  return fmt::format("{}: from {} to {}, ending at {}", curve.name, brief_up(least.y),
                     brief_up(largest.y), brief_up(curve.points.back().y));
}

// caption: HTML. Nothing if there is nothing to draw.
std::string figure(Plot plot, const std::string& caption) {
  std::erase_if(plot.curves, [](const Plot::Curve& curve) { return curve.points.empty(); });
  if (plot.curves.empty()) return "";
  std::string legend;
  for (std::size_t i = 0; i < plot.curves.size(); ++i) {
    plot.description += (i == 0 ? "" : ". ") + range(plot.curves[i]);
    legend += fmt::format(
        "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><line class=\"s{}\" x1=\"0\" y1=\"4\" "
        "x2=\"24\" y2=\"4\"/></svg>{}</li>",
        i + 1, escape(plot.curves[i].name));
  }
  for (const Plot::Level& level : plot.levels)
    plot.description += ". Limit or warning: " + level.label;
  return fmt::format("<figure>\n<figcaption><h3>{}</h3><p>{}</p>{}</figcaption>\n{}</figure>\n",
                     escape(plot.title), caption,
                     plot.curves.size() > 1 ? "<ul class=\"legend\">" + legend + "</ul>" : "",
                     svg(plot));
}

std::string epsilon_figure(const Declared& declared, const Series& epsilon) {
  const DpConfig& dp = declared.config.privacy;
  if (epsilon.size() < 2) return "";
  Plot plot;
  plot.title = "Privacy spent";
  plot.x_label = "steps";
  plot.y_label = "ε, upper end";
  plot.curves = {{"ε", points(epsilon)}};
  if (dp.target_epsilon > 0)
    plot.levels = {
        {dp.target_epsilon, fmt::format("budget {}", dp.target_epsilon), true},
        {dp.target_epsilon * (1 - dp.safety_budget_reserve),
         fmt::format("warning {:.6g}", dp.target_epsilon * (1 - dp.safety_budget_reserve)), false}};
  return figure(std::move(plot),
                declared.not_private.empty()
                    ? "Certified for all steps up to this one together. A step that would exceed "
                      "the budget is never released."
                    : "Computed by the accountant. In this run it guarantees nothing.");
}

std::string noise_figure(const Series& noise) {
  Plot plot;
  plot.title = "Scheduled noise";
  plot.x_label = "steps";
  plot.y_label = "noise multiplier σ";
  plot.curves = {{"σ", points(noise)}};
  return figure(std::move(plot), "The scheduled multiplier, before it is divided among parts.");
}

std::string released_figure(const ReleasedMetrics& released) {
  if (released.clip_fraction.empty()) return "";
  Plot plot;
  plot.title = "Clipped records, as released";
  plot.x_label = "steps";
  plot.y_label = "fraction of the batch, noised";
  plot.curves = {{"clipped", points(released.clip_fraction)}};
  std::string parts;
  for (const double fraction : released.group_clip_fraction)
    parts += fmt::format("{}{:.4g}", parts.empty() ? "" : ", ", fraction);
  if (released.group_clip_fraction.size() > 1)
    parts = fmt::format(" By part, in the last step: {}.", parts);
  else
    parts.clear();
  return figure(std::move(plot),
                "Noisy estimates, included in ε (<code>metrics.release: dp</code>): "
                "everyone may see them. They may lie outside 0 to 1; negative values are drawn as "
                "0." +
                    parts);
}

std::string evaluation_figures(const std::vector<Evaluation>& evaluations) {
  Plot loss, accuracy;
  loss.title = "Loss";
  accuracy.title = "Accuracy";
  loss.x_label = accuracy.x_label = "epochs";
  loss.y_label = "mean loss";
  accuracy.y_label = "fraction correct";
  accuracy.most = 1;
  loss.curves = {{"training", {}}, {"held out", {}}};
  accuracy.curves = loss.curves;
  for (const Evaluation& each : evaluations) {
    const auto put = [&](Plot::Curve& curve, const std::optional<double>& value) {
      if (value) curve.points.push_back({each.epoch, std::max(0.0, *value)});
    };
    put(loss.curves[0], each.train_loss);
    put(loss.curves[1], each.test_loss);
    put(accuracy.curves[0], each.train_accuracy);
    put(accuracy.curves[1], each.test_accuracy);
  }
  return figure(std::move(loss), "Measured without noise, after each epoch: confidential.") +
         figure(std::move(accuracy), "Measured without noise. Held-out records have no guarantee.");
}

std::string gradient_figures(const Declared& declared, const Observed& observed) {
  const DpConfig& dp = declared.config.privacy;
  Plot norms;
  norms.title = "Gradient norms";
  norms.x_label = "steps";
  norms.y_label = "norm before clipping";
  norms.curves = {{"median", points(observed.norm_p50)},
                  {"95th percentile", points(observed.norm_p95)}};
  // The classes of a corpus have bounds of their own.
  if (!declared.config.corpus.policy)
    norms.levels = {
        {dp.clip_norm,
         fmt::format("{} {:.4g}", dp.clip_norm_adaptive ? "initial bound" : "clip bound",
                     dp.clip_norm),
         true}};
  Plot clipped;
  clipped.title = "Clipped records";
  clipped.x_label = "steps";
  clipped.y_label = "fraction of the batch";
  clipped.most = 1;
  clipped.curves = {{"clipped", points(observed.clip_fraction)}};
  return figure(std::move(norms),
                "Gradient norms in each batch. Gradients above the bound are scaled down to it.") +
         figure(std::move(clipped), "Records whose gradient norm exceeded the bound.");
}

}  // namespace

std::string figures(const Declared& declared, const Observed* observed) {
  const bool is_public = observed == nullptr;
  std::string out =
      epsilon_figure(declared, is_public ? declared.epsilon : observed->epsilon) +
      noise_figure(is_public ? declared.noise_multiplier : observed->noise_multiplier) +
      released_figure(is_public ? declared.released : observed->released);
  if (!is_public) {
    out += evaluation_figures(observed->evaluations);
    out += gradient_figures(declared, *observed);
  }
  if (out.empty()) return "";
  const std::size_t steps = is_public ? declared.epsilon.size() : observed->epsilon.size();
  const char* thinned =
      "<p class=\"small\">If there are more steps than the chart can show, the band spans the "
      "smallest to the largest value of the steps in a column, and the line shows their "
      "mean.</p>\n";
  return fmt::format(
      "<section aria-labelledby=\"course\">\n<h2 id=\"course\">The course of the run</h2>\n"
      "<div class=\"figures\">\n{}</div>\n{}</section>\n",
      out, steps > 300 ? thinned : "");
}

}  // namespace discreet::report
