#pragma once

#include <cstdint>
#include <span>

namespace discreet {

// Overwrites with zeros what a B-tree page of SQLite's file format (section 1.6) does not use: the
// gap between the pointers and the cells, and the content of free blocks. SQLite moves cells
// between pages and leaves copies there, which `secure_delete` does not overwrite when the cell is
// deleted; it never reads them. Runs of up to 3 bytes between cells stay.
//
// page: the whole page, in a file without auto_vacuum that has fewer than 2^25 pages: then the
// first byte tells a B-tree page from any other. first: whether it is page 1, which begins with the
// file's header. A page that is not a sound B-tree page stays as it is.
void zero_gaps(std::span<std::uint8_t> page, bool first) noexcept;

}  // namespace discreet
