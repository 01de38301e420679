#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Line charts as SVG 1.1 without external scripts, fonts or files. Colours are CSS classes (axis,
// grid, band, s1 to s4, limit, warn), which the page or the file styles for light and dark.
namespace discreet::report {

struct Plot {
  struct Point {
    double x, y;
  };
  struct Curve {
    std::string name;
    std::vector<Point> points;  // finite, >= 0, ascending in x
  };
  struct Level {   // a dashed horizontal line
    double value;  // finite, >= 0
    std::string label;
    bool is_limit;  // a limit, or a warning before one
  };
  // Text for readers who cannot see the chart.
  std::string title, description;
  std::string x_label, y_label;
  std::vector<Curve> curves;   // at most 4
  std::vector<Level> levels;   // one that would flatten the curves is named above the chart instead
  std::optional<double> most;  // the largest possible value; the y axis does not go beyond it
  double width = 360, height = 232;  // pixels at scale 1
};

// The y axis shows the curves: it ends a little above them and begins at 0, or below the smallest
// value if all are far from 0.
//
// The chart as part of a page.
std::string svg(const Plot& plot);

// The chart as a separate file, with heading and colours; it names the curves.
std::string svg_file(const Plot& plot, std::string_view subtitle);

// The points in one of `columns` equal parts of the x axis.
struct Column {
  double x = 0;  // their middle
  double least = 0, largest = 0, mean = 0;
};
// The data for drawing a curve with more points than can be distinguished: a band from the smallest
// to the largest value of each column, so that no peak is lost, and a line through the means. Empty
// columns are omitted.
std::vector<Column> columns_of(const std::vector<Plot::Point>& points, std::size_t columns);

// Text that is safe inside HTML and SVG, in content and quoted attributes: & < > " ' become
// entities, control characters and bytes that are not UTF-8 become U+FFFD.
std::string escape(std::string_view text);

}  // namespace discreet::report
