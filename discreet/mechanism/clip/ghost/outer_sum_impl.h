#pragma once

#include <cstddef>
#include <memory>

namespace discreet::mechanism {

// A matrix read by rows k and columns j, borrowed: element (k, j) is
//   factor * row_factor[k] * data[k * row_stride + j * column_stride],
// each product rounded to binary64.
template <class Source>
struct Rows {
  const Source* data = nullptr;
  std::size_t row_stride = 0;
  std::size_t column_stride = 1;
  const double* row_factor = nullptr;  // one per row; null: all 1
  double factor = 1;
};

// Packed operands; reused between calls, one per thread. Its size does not depend on the matrices.
struct OuterScratch {
  std::unique_ptr<float[]> floats;
  std::unique_ptr<double[]> doubles;
};

// target[m * stride + n] += sum_{k < rows} x(k, m) * y(k, n)   for m < x_columns, n < y_columns.
//   first: the target counts as zeros, whatever it contains: the same bits as adding to zeros,
//     without reading or initialising it. Needs rows > 0.
//   Real: float or double. Operands are rounded to Real. Products are added with one rounding each
//   (fused multiply-add; two roundings on processors without it) in ascending k, in runs of at most
//   `run` rows that start at zero; the result of a run is widened and added in binary64.
// A row k for which x has a row_factor of 0 is not read in either matrix and counts as zeros.
//   record: number of rows that belong together, > 0. A run starts at every multiple of it and,
//   inside, at every multiple of 256 rows: the result of a record of several rows in Real does not
//   depend on other records. 256: every row is its own record.
// The bits of an element depend only on its rows, `run` and `record`, not on its place in the
// matrix, the vector width or the caller.
template <class Real, class Source>
void add_outer(const Rows<Source>& x, std::size_t x_columns, const Rows<Source>& y,
               std::size_t y_columns, std::size_t rows, std::size_t run, double* target,
               std::size_t stride, bool first, OuterScratch& scratch, std::size_t record = 256);

}  // namespace discreet::mechanism
