#pragma once

#include <zlib.h>

#include <string>

#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"

namespace discreet::data {

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  write_atomically(path, bytes_of(text));
}

inline void write_gzip(const std::filesystem::path& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

}  // namespace discreet::data
