#include "discreet/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/text/utf8.h"

namespace discreet::report {
namespace {

// About `count` ticks at 1, 2 or 5 times a power of ten.
double tick_gap(double length, double count) {
  const double rough = length / count, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double each : {1.0, 2.0, 5.0}) {
    if (each * power >= rough) return each * power;
  }
  return 10 * power;
}

// One axis: values from `least` to `most` onto pixels from `begin` to `end`.
struct Axis {
  double least, most, begin, end;
  double at(double value) const {
    return begin + (end - begin) * ((value - least) / (most - least));
  }
  // Of ticks: multiples of the gap.
  double first(double gap) const { return std::ceil(least / gap * (1 - 1e-12)); }
  double last(double gap) const { return std::floor(most / gap * (1 + 1e-12)); }
};

struct Reach {
  double lowest = 0, highest = 0, farthest = 0;
};

Reach reach_of(const Plot& plot) {
  Reach out;
  bool any = false;
  for (const Plot::Curve& each : plot.curves)
    for (const Plot::Point& point : each.points) {
      out.lowest = any ? std::min(out.lowest, point.y) : point.y;
      out.highest = std::max(out.highest, point.y);
      out.farthest = std::max(out.farthest, point.x);
      any = true;
    }
  return out;
}

// A level farther away would leave the curves less than two fifths of the chart.
bool is_near(const Plot::Level& level, const Reach& reach) {
  return reach.highest == 0 || level.value <= 2.5 * reach.highest;
}

Axis y_axis(const Plot& plot, const Reach& reach, double begin, double end) {
  double highest = reach.highest, lowest = reach.lowest;
  for (const Plot::Level& level : plot.levels) {
    if (!is_near(level, reach)) continue;
    highest = std::max(highest, level.value);
    lowest = std::min(lowest, level.value);
  }
  double most = std::min(highest * 1.12, 1e300);
  if (plot.most) most = std::min(std::max(most, *plot.most * 1e-3), *plot.most);
  if (!(most > 0)) most = 1;
  // From 0, unless that leaves the curves less than half of the chart.
  const double span = highest - lowest;
  const double least = span > 0 && lowest > highest / 2 ? std::max(0.0, lowest - span / 4) : 0;
  if (least > 0) most = std::min(highest + span / 4, plot.most.value_or(most));
  return {least, most, begin, end};
}

// 1500 as 1500, 150000 as 150k.
std::string tick_text(double value, double gap) {
  for (const auto& [unit, name] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (gap >= unit / 2 && value >= 10 * unit) return fmt::format("{:.4g}{}", value / unit, name);
  return fmt::format("{:.6g}", value);
}

std::string text(double x, double y, const char* anchor, std::string_view content,
                 std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escape(content));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view more) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, more);
}

std::string pair(double x, double y) { return fmt::format("{:.1f},{:.2f} ", x, y); }

std::string polyline(const std::string& points, std::size_t number) {
  return fmt::format("<polyline class=\"s{}\" points=\"{}\"/>\n", number,
                     std::string_view(points).substr(0, points.size() - 1));
}

std::string curve(const std::vector<Plot::Point>& points, std::size_t number, const Axis& x,
                  const Axis& y) {
  if (points.empty()) return "";
  if (points.size() == 1)
    return fmt::format("<circle class=\"s{} dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n", number,
                       x.at(points[0].x), y.at(points[0].y));
  const auto wide = static_cast<std::size_t>(x.end - x.begin) / 2;
  std::string line, back;
  if (points.size() <= 2 * wide) {
    for (const Plot::Point& point : points) line += pair(x.at(point.x), y.at(point.y));
    return polyline(line, number);
  }
  std::string band;
  const std::vector<Column> columns = columns_of(points, wide);
  for (const Column& column : columns) {
    band += pair(x.at(column.x), y.at(column.largest));
    line += pair(x.at(column.x), y.at(column.mean));
  }
  for (auto column = columns.rbegin(); column != columns.rend(); ++column)
    back += pair(x.at(column->x), y.at(column->least));
  return fmt::format("<polygon class=\"band s{}\" points=\"{}{}\"/>\n", number, band,
                     std::string_view(back).substr(0, back.size() - 1)) +
         polyline(line, number);
}

// Everything inside the svg element.
std::string drawing(const Plot& plot, double top) {
  const Reach reach = reach_of(plot);
  const Axis x{0, reach.farthest > 0 ? reach.farthest : 1, 46, plot.width - 12};
  const Axis y = y_axis(plot, reach, plot.height - 40, top);

  std::string out;
  const double y_gap = tick_gap(y.most - y.least, (y.begin - y.end) / 42);
  const double x_gap = tick_gap(x.most, (x.end - x.begin) / 70);
  for (double i = y.first(y_gap); i <= y.last(y_gap); ++i) {
    const double at = y.at(i * y_gap);
    if (at < y.begin - 0.5) out += line(x.begin, at, x.end, at, "class=\"grid\"");
    out += text(x.begin - 7, at + 4, "end", tick_text(i * y_gap, y_gap));
  }
  for (double i = 0; i <= x.last(x_gap); ++i) {
    const double at = x.at(i * x_gap);
    out += line(at, y.begin, at, y.begin + 4, "class=\"axis\"");
    const bool at_edge = at > x.end - 8;
    out += text(at_edge ? x.end + 8 : at, y.begin + 16, at_edge ? "end" : "middle",
                tick_text(i * x_gap, x_gap));
  }
  out += line(x.begin, y.begin, x.end, y.begin, "class=\"axis\"");
  out += text(x.end, plot.height - 6, "end", plot.x_label, " class=\"label\"");
  out += text(x.begin, top - 10, "start", plot.y_label, " class=\"label\"");

  for (std::size_t i = 0; i < plot.curves.size(); ++i)
    out += curve(plot.curves[i].points, i + 1, x, y);

  for (const Plot::Level& level : plot.levels) {
    if (!is_near(level, reach)) {
      if (level.is_limit)
        out += text(x.end, top - 10, "end", level.label + " ↑", " class=\"limit\"");
      continue;
    }
    const char* kind = level.is_limit ? "limit" : "warn";
    const double at = y.at(std::min(level.value, y.most));
    out += line(x.begin, at, x.end, at, fmt::format("class=\"{}\" stroke-dasharray=\"5 4\"", kind));
    // A warning lies below its limit, and so does its label.
    out += text(x.begin + 6, level.is_limit ? at - 5 : at + 14, "start", level.label,
                fmt::format(" class=\"{}\"", kind));
  }
  return out;
}

}  // namespace

std::string svg(const Plot& plot) {
  return fmt::format(
      "<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}. {}\">\n{}</svg>\n",
      plot.width, plot.height, escape(plot.title), escape(plot.description), drawing(plot, 26));
}

std::string svg_file(const Plot& plot, std::string_view subtitle) {
  // The same colours as in the style sheet of the page, light.
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#1d2530\" "
      "role=\"img\">\n<title>{2}</title>\n<style>.grid{{stroke:#e2e6ea}}.axis{{stroke:#8792a0}}"
      "polyline{{fill:none;stroke-width:2.2;stroke-linejoin:round}}polyline.s1{{stroke:#1f5fa8}}"
      "text.s1{{fill:#1f5fa8}}.dot{{fill:#1f5fa8}}"
      "polyline.s2{{stroke:#b0500a}}text.s2{{fill:#b0500a}}polyline.s3{{stroke:#8a4baf}}"
      "text.s3{{fill:#8a4baf}}polyline.s4{{stroke:#6b5b00}}text.s4{{fill:#6b5b00}}"
      "line.limit{{stroke:#b3261e;stroke-width:1.5}}text.limit{{fill:#b3261e}}"
      ".label{{fill:#55606e}}</style>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fcfcfd\"/>\n",
      plot.width, plot.height, escape(plot.title));
  out += text(46, 30, "start", plot.title, " font-size=\"17\" font-weight=\"bold\"");
  out += text(46, 51, "start", subtitle, " class=\"label\"");
  out += drawing(plot, 92);
  for (std::size_t i = 0; i < plot.curves.size(); ++i)
    out += text(plot.width - 20, plot.height - 52 - 18 * double(plot.curves.size() - 1 - i), "end",
                plot.curves[i].name, fmt::format(" class=\"s{}\"", i + 1));
  return out + "</svg>\n";
}

std::vector<Column> columns_of(const std::vector<Plot::Point>& points, std::size_t columns) {
  std::vector<Column> out;
  if (points.empty() || columns == 0) return out;
  const double begin = points.front().x, width = (points.back().x - begin) / double(columns);
  const auto number = [&](const Plot::Point& point) {
    return width > 0 ? std::min(columns - 1, static_cast<std::size_t>((point.x - begin) / width))
                     : 0;
  };
  for (std::size_t first = 0; first < points.size();) {
    Column column{begin + width * (double(number(points[first])) + 0.5), points[first].y,
                  points[first].y};
    std::size_t end = first;
    for (; end < points.size() && number(points[end]) == number(points[first]); ++end) {
      column.least = std::min(column.least, points[end].y);
      column.largest = std::max(column.largest, points[end].y);
      // Not by a sum: it could leave the range.
      column.mean += (points[end].y - column.mean) / double(end - first + 1);
    }
    out.push_back(column);
    first = end;
  }
  return out;
}

std::string escape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    // Up to the next byte that is no character, and that byte replaced.
    const std::optional<std::size_t> bad = find_bad_utf8(bytes_of(text.substr(i)));
    const std::string_view good = text.substr(i, bad.value_or(text.size() - i));
    for (const char c : good) {
      switch (c) {
        case '&': out += "&amp;"; break;
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        case '"': out += "&quot;"; break;
        case '\'': out += "&#39;"; break;
        case '\n':
        case '\t': out += c; break;
        default:
          if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            out += "\uFFFD";
          else
            out += c;
      }
    }
    i += good.size();
    if (bad) {
      out += "\uFFFD";
      ++i;
    }
  }
  return out;
}

}  // namespace discreet::report
