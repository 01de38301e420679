#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace discreet::cli {
namespace {

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 72, kRight = 28, kTop = 72, kBottom = 60;
constexpr const char* kInk = "#1f2933";
constexpr const char* kFaint = "#d9dee4";
constexpr const char* kCurve = "#1f5fa8";
constexpr const char* kLevel = "#b3261e";

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// About five ticks at 1, 2 or 5 times a power of ten.
double tick_gap(double most) {
  const double rough = most / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double each : {1.0, 2.0, 5.0}) {
    if (each * power >= rough) return each * power;
  }
  return 10 * power;
}

// One axis: values from 0 to `most` onto pixels from `begin` to `end`.
struct Axis {
  double most, begin, end;
  double at(double value) const { return begin + (end - begin) * (value / most); }
};

std::string text(double x, double y, const char* anchor, const std::string& content,
                 const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y,
                     anchor, more, escape(content));
}

std::string line(double x1, double y1, double x2, double y2, const char* colour,
                 const char* more = "") {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" {}/>\n", x1, y1,
      x2, y2, colour, more);
}

}  // namespace

std::string svg(const Plot& plot) {
  double highest = plot.level;
  for (const Plot::Point& point : plot.curve) highest = std::max(highest, point.y);
  const Axis x{std::max(plot.curve.back().x, 1e-300), kLeft, kWidth - kRight};
  const Axis y{highest * 1.12, kHeight - kBottom, kTop};

  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"{2}\" role=\"img\">\n"
      "<title>{3}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fcfcfd\"/>\n",
      kWidth, kHeight, kInk, escape(plot.title));
  out += text(kLeft, 30, "start", plot.title, "font-size=\"17\" font-weight=\"bold\"");
  out += text(kLeft, 51, "start", plot.subtitle, "fill=\"#52606d\"");

  const double y_gap = tick_gap(y.most), x_gap = tick_gap(x.most);
  for (int i = 0; i * y_gap <= y.most; ++i) {
    const double at = y.at(i * y_gap);
    if (i > 0) out += line(x.begin, at, x.end, at, kFaint);
    out += text(x.begin - 8, at + 4.5, "end", fmt::format("{:.6g}", i * y_gap));
  }
  for (int i = 0; i * x_gap <= x.most * (1 + 1e-12); ++i) {
    const double at = x.at(i * x_gap);
    out += line(at, y.begin, at, y.begin + 5, kInk);
    out += text(at, y.begin + 20, "middle", fmt::format("{:.10g}", i * x_gap));
  }
  out += line(x.begin, y.begin, x.end, y.begin, kInk);
  out += line(x.begin, y.begin, x.begin, y.end, kInk);
  out += text((x.begin + x.end) / 2, kHeight - 16, "middle", plot.x_label);
  const double middle = (y.begin + y.end) / 2;
  out += text(20, middle, "middle", plot.y_label,
              fmt::format("transform=\"rotate(-90 20 {:.1f})\"", middle));

  const double level = y.at(plot.level);
  out +=
      line(x.begin, level, x.end, level, kLevel, "stroke-width=\"1.5\" stroke-dasharray=\"6 4\" ");
  out +=
      text(x.begin + 8, level - 7, "start", plot.level_label, fmt::format("fill=\"{}\"", kLevel));

  std::string points = fmt::format("{:.2f},{:.2f}", x.begin, y.begin);
  for (const Plot::Point& point : plot.curve) {
    points += fmt::format(" {:.2f},{:.2f}", x.at(point.x), y.at(point.y));
  }
  out += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" "
      "stroke-linejoin=\"round\"/>\n",
      points, kCurve);
  out += text(x.end - 8, y.begin - 12, "end", plot.curve_label, fmt::format("fill=\"{}\"", kCurve));
  return out + "</svg>\n";
}

}  // namespace discreet::cli
