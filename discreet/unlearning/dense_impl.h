#pragma once

#include <cstddef>
#include <span>
#include <vector>

// Small dense symmetric matrices, row by row in fixed order: the same bits on every IEEE platform.
namespace discreet::unlearning {

// The eigenvalues of a symmetric k x k matrix, by cyclic Jacobi rotations; unordered.
std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, std::size_t k);

// Replaces the lower triangle of a symmetric d x d matrix by its Cholesky factor. Returns false if
// a pivot is not positive; the content of the matrix is then undefined.
bool cholesky(std::span<double> matrix, std::size_t d) noexcept;

// Solves L L' x = b in place, with the factor of `cholesky`.
void cholesky_solve(std::span<const double> factor, std::size_t d, std::span<double> b) noexcept;

}  // namespace discreet::unlearning
