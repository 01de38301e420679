#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/text/printable.h"

// How commands print. Texts may come from a file that a stranger wrote: a name with an escape
// sequence or a line break would overwrite the verdict above it. So texts among the arguments are
// escaped (base/text/printable.h); literals of the program are not.
namespace discreet::cli {

template <class T>
decltype(auto) escaped(T&& value) {
  using Plain = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<Plain, std::string> || std::is_same_v<Plain, std::string_view>)
    return printable(value);
  else
    return std::forward<T>(value);
}

[[noreturn]] inline void output_failed() {
  throw Error(ErrorCode::kIoError, "output", "the output could not be written; is the disk full?");
}

// Text of several lines that is ours, or JSON of ours in several lines. Throws kIoError if standard
// output takes no more; a failure of standard error is ignored, because nobody could be told.
inline void print_lines(std::string_view text, std::FILE* file = stdout) {
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size() && file == stdout)
    output_failed();
}

template <class... T>
void print(std::FILE* file, fmt::format_string<decltype(escaped(std::declval<T>()))...> format,
           T&&... values) {
  print_lines(fmt::vformat(format, fmt::make_format_args(escaped(std::forward<T>(values))...)),
              file);
}
template <class... T>
void print(fmt::format_string<decltype(escaped(std::declval<T>()))...> format, T&&... values) {
  print_lines(fmt::vformat(format, fmt::make_format_args(escaped(std::forward<T>(values))...)));
}

// Throws kIoError unless everything printed so far is written.
inline void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) output_failed();
}

}  // namespace discreet::cli
