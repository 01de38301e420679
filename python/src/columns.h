#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/data/table.h"

namespace discreet::python {

namespace nb = nanobind;

// Columns as Python gives them: pairs of a name and a NumPy array of float64 or a list of str. The
// numbers stay where they are.
struct Columns {
  using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::device::cpu>;
  data::Table table;
  std::vector<Numbers> held;  // keeps the memory

  explicit Columns(const nb::list& columns) {
    for (const nb::handle entry : columns) {
      const auto pair = nb::cast<nb::tuple>(entry);
      data::Table::Column column{nb::cast<std::string>(pair[0]), nullptr, 1, {}};
      std::size_t rows = 0;
      if (Numbers numbers; nb::try_cast(pair[1], numbers, /*convert=*/false)) {
        rows = numbers.shape(0);
        static constexpr double kNothing = 0;  // an empty column is one of numbers too
        column.numbers = rows == 0 ? &kNothing : numbers.data();
        column.stride = numbers.stride(0);
        held.push_back(std::move(numbers));
      } else {
        column.words = nb::cast<std::vector<std::string>>(pair[1]);
        rows = column.words.size();
      }
      if (!table.columns.empty() && rows != table.rows)
        invalid_input("data", "column {} has {} rows, but the columns before it have {}",
                      column.name, rows, table.rows);
      table.rows = rows;
      table.columns.push_back(std::move(column));
    }
  }
};

}  // namespace discreet::python
