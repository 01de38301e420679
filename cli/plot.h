#pragma once

#include <string>
#include <vector>

namespace discreet::cli {

// One rising curve from the origin and a level it should stay below, as SVG 1.1 of 720 by 440
// pixels: light background, round ticks, no script, no external font or file.
struct Plot {
  struct Point {
    double x, y;
  };
  std::string title, subtitle;
  std::string x_label, y_label;
  std::vector<Point> curve;  // finite, >= 0, ascending in x, not empty
  std::string curve_label;
  double level;  // > 0
  std::string level_label;
};

std::string svg(const Plot& plot);

}  // namespace discreet::cli
