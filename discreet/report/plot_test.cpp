#include "discreet/report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace discreet::report {
namespace {

TEST(Plot, ThinningKeepsEveryPeakAndAddsNone) {
  std::mt19937_64 random(7);
  std::vector<Plot::Point> points;
  for (int i = 0; i < 100000; ++i)
    points.push_back({double(i), 1 + 0.1 * std::sin(i) + (random() % 9973 == 0 ? 5.0 : 0.0)});
  const auto thin = thin_out(points, 300);
  EXPECT_LE(thin.size(), 1200u);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 99999);
  std::size_t columns_with_a_peak = 0, kept = 0;
  for (int column = 0; column < 300; ++column) {
    const auto peak_in = [&](const auto& some) {
      double highest = 0;
      for (const Plot::Point& point : some)
        if (int(point.x / 99999 * 300) == column) highest = std::max(highest, point.y);
      return highest;
    };
    columns_with_a_peak += peak_in(points) > 5;
    kept += peak_in(points) > 5 && peak_in(thin) == peak_in(points);
  }
  EXPECT_GT(columns_with_a_peak, 3u);
  EXPECT_EQ(kept, columns_with_a_peak);
  for (const Plot::Point& point : thin) EXPECT_EQ(point.y, points[std::size_t(point.x)].y);
}

TEST(Plot, LeavesShortCurvesAsTheyAre) {
  EXPECT_EQ(thin_out({{0, 1}, {1, 2}, {2, 1}}, 300).size(), 3u);
  EXPECT_TRUE(thin_out({}, 300).empty());
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
