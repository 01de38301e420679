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
//   first: the target counts as zeros, whatever it is: the same bits as of a sum to which is added,
//     without reading or setting it before. Needs rows > 0.
//   Real: float or double. Operands are rounded to Real. Products are added with one rounding each
//   (fused multiply-add; two roundings on processors without) in ascending k, in runs of at most
//   `run` rows that begin at zero; what a run leaves is widened and added in binary64.
// A row k for which x has a row_factor of 0 is read in neither matrix and counts as zeros.
//   record: rows that belong together, > 0. A run starts at every multiple of it and, inside, at
//   every multiple of 256 rows: what a record of several rows leaves in Real does not depend on
//   other records. 256: rows are their own.
// The bits of an element depend on its rows, on `run` and on `record` alone: not on its place in
// the matrix, on the width of the vectors, or on who calls.
template <class Real, class Source>
void add_outer(const Rows<Source>& x, std::size_t x_columns, const Rows<Source>& y,
               std::size_t y_columns, std::size_t rows, std::size_t run, double* target,
               std::size_t stride, bool first, OuterScratch& scratch, std::size_t record = 256);

}  // namespace discreet::mechanism
