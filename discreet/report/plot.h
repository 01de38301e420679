#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Lines over an axis, as SVG 1.1 without script, font or file from elsewhere. Colours are CSS
// classes (axis, grid, band, s1 to s4, limit, warn), which the page or the file styles for light
// and dark.
namespace discreet::report {

struct Plot {
  struct Point {
    double x, y;
  };
  struct Curve {
    std::string name;
    std::vector<Point> points;  // finite, >= 0, ascending in x
  };
  struct Level {   // a dashed line across
    double value;  // finite, >= 0
    std::string label;
    bool is_limit;  // a limit, or a warning before one
  };
  // What a reader who cannot see it is told.
  std::string title, description;
  std::string x_label, y_label;
  std::vector<Curve> curves;  // at most 4
  std::vector<Level> levels;
  std::optional<double> most;        // upper end of the y axis; else what the values need
  double width = 360, height = 232;  // pixels at scale 1
};

// As a part of a page.
std::string svg(const Plot& plot);

// As a file of its own, with heading and colours; the first curve is named in it.
std::string svg_file(const Plot& plot, std::string_view subtitle);

// The points that share one of `columns` equal parts of the x axis.
struct Column {
  double x = 0;  // their middle
  double least = 0, largest = 0, mean = 0;
};
// What a curve with more points than can be told apart is drawn from: a band from the least to the
// largest of each column, so that no peak is lost, and a line through the means. Empty columns are
// left out.
std::vector<Column> columns_of(const std::vector<Plot::Point>& points, std::size_t columns);

// Text that is safe inside HTML and SVG, in content and quoted attributes: & < > " ' as entities,
// control characters and what is not UTF-8 as U+FFFD.
std::string escape(std::string_view text);

}  // namespace discreet::report
