#pragma once

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

namespace discreet::accounting {

// The rows of tests/golden/accounting/NAME, `columns` numbers each; the script beside the file
// wrote them.
template <std::size_t columns>
std::vector<std::array<double, columns>> golden_rows(const std::string& name) {
  std::ifstream file(std::string(DISCREET_GOLDEN) + "/" + name);
  std::vector<std::array<double, columns>> rows;
  for (std::array<double, columns> row;;) {
    for (double& value : row) file >> value;
    if (!file) break;
    rows.push_back(row);
  }
  EXPECT_FALSE(rows.empty()) << name << " is missing";
  EXPECT_TRUE(file.eof()) << name << " holds something else than numbers";
  return rows;
}

}  // namespace discreet::accounting
