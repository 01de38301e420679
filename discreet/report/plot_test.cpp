#include "discreet/report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

namespace discreet::report {
namespace {

TEST(Plot, ColumnsHaveTheLeastLargestAndMeanOfTheirPoints) {
  std::mt19937_64 random(7);
  std::vector<Plot::Point> points;
  for (int i = 0; i < 100000; ++i)
    points.push_back({double(i), 1 + 0.1 * std::sin(i) + (random() % 9973 == 0 ? 5.0 : 0.0)});
  const std::vector<Column> columns = columns_of(points, 300);
  ASSERT_EQ(columns.size(), 300u);
  int peaks = 0;
  for (std::size_t c = 0; c < 300; ++c) {
    double least = 1e9, largest = 0, sum = 0, count = 0;
    for (const Plot::Point& point : points) {
      if (std::min<std::size_t>(299, std::size_t(point.x / (99999.0 / 300))) != c) continue;
      least = std::min(least, point.y);
      largest = std::max(largest, point.y);
      sum += point.y;
      ++count;
    }
    EXPECT_EQ(columns[c].least, least);
    EXPECT_EQ(columns[c].largest, largest);
    EXPECT_NEAR(columns[c].mean, sum / count, 1e-9);
    peaks += largest > 5;
  }
  EXPECT_GT(peaks, 3);
}

TEST(Plot, DrawsEveryPointWhereThereIsRoom) {
  Plot plot;
  plot.curves = {{"few", {{0, 1}, {1, 2}, {2, 1}}}};
  EXPECT_EQ(svg(plot).find("<polygon"), std::string::npos);
  for (int i = 3; i < 5000; ++i) plot.curves[0].points.push_back({double(i), 1});
  EXPECT_NE(svg(plot).find("<polygon"), std::string::npos);
}

// The numbers beside the y axis.
std::vector<double> ticks(const std::string& drawing) {
  std::vector<double> out;
  const std::regex tick("<text x=\"39.0\" y=\"[0-9.]*\" text-anchor=\"end\">([0-9.]+)</text>");
  for (std::sregex_iterator at(drawing.begin(), drawing.end(), tick), end; at != end; ++at)
    out.push_back(std::stod((*at)[1]));
  return out;
}

TEST(Plot, TheAxisShowsTheCurve) {
  Plot plot;
  plot.curves = {{"epsilon", {{0, 0}, {50, 1.9}, {100, 2.7}}}};
  plot.levels = {{12, "budget 12", true}};
  EXPECT_LE(ticks(svg(plot)).back(), 3.1);
  EXPECT_NE(svg(plot).find("budget 12 ↑"), std::string::npos) << "far above: named, not drawn";
  EXPECT_EQ(svg(plot).find("stroke-dasharray"), std::string::npos);
  plot.levels[0].value = 3;
  EXPECT_NE(svg(plot).find("stroke-dasharray"), std::string::npos);

  Plot accuracy;
  accuracy.most = 1;
  accuracy.curves = {{"held out", {{1, 0.93}, {10, 0.97}}}};
  EXPECT_GE(ticks(svg(accuracy)).front(), 0.9);
  EXPECT_LE(ticks(svg(accuracy)).back(), 1);
  accuracy.curves[0].points[0].y = 0.3;
  EXPECT_EQ(ticks(svg(accuracy)).front(), 0);
  accuracy.curves = {{"clipped", {{1, 0.01}, {10, 0.02}}}};
  EXPECT_LE(ticks(svg(accuracy)).back(), 0.025);
  accuracy.curves = {{"constant", {{1, 0.5}, {10, 0.5}}}};
  EXPECT_EQ(ticks(svg(accuracy)).front(), 0);
}

TEST(Plot, DrawsOnePointHugeValuesAndNothing) {
  Plot plot;
  EXPECT_NE(svg(plot).find("<svg"), std::string::npos);
  plot.curves = {{"one", {{5, 2}}}};
  EXPECT_NE(svg(plot).find("<circle"), std::string::npos);
  plot.curves = {{"huge", {{0, 0}, {1e15, 1.7e308}}}};
  EXPECT_EQ(svg(plot).find("inf"), std::string::npos);
  EXPECT_EQ(svg(plot).find("nan"), std::string::npos);
}

TEST(Escape, LeavesNoMarkupNoControlAndNoBrokenCharacter) {
  EXPECT_EQ(escape("<script>alert(\"a\" & 'b')</script>"),
            "&lt;script&gt;alert(&quot;a&quot; &amp; &#39;b&#39;)&lt;/script&gt;");
  EXPECT_EQ(escape("ε≤3"), "ε≤3");
  EXPECT_EQ(escape(std::string("a\0b\x1b", 4)), "a\uFFFDb\uFFFD");
  EXPECT_EQ(escape("a\xff\xc3"), "a\uFFFD\uFFFD");
}

}  // namespace
}  // namespace discreet::report
