#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

template <class... T>
void print(std::FILE* file, fmt::format_string<decltype(escaped(std::declval<T>()))...> format,
           T&&... values) {
  fmt::vprint(file, format, fmt::make_format_args(escaped(std::forward<T>(values))...));
}
template <class... T>
void print(fmt::format_string<decltype(escaped(std::declval<T>()))...> format, T&&... values) {
  fmt::vprint(stdout, format, fmt::make_format_args(escaped(std::forward<T>(values))...));
}

// Text of several lines that is ours, or JSON of ours in several lines.
inline void print_lines(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace discreet::cli
