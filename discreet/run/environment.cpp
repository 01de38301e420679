#include "discreet/run/environment.h"

#include <cblas.h>
#include <fmt/core.h>
#include <link.h>

#include <cstdint>
#include <string_view>

#include "discreet/base/files.h"
#include "discreet/base/hash.h"
#include "discreet/base/version.h"
#include "discreet/data/matrix.h"

namespace discreet::run {
namespace {

// The file that holds this function: the command itself, or a shared library around it.
std::string own_file() {
  struct Search {
    std::uintptr_t address;
    std::string path;
  } search{reinterpret_cast<std::uintptr_t>(&own_file), {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
          if (segment.p_type != PT_LOAD || wanted.address < begin ||
              wanted.address - begin >= segment.p_memsz)
            continue;
          wanted.path = object->dlpi_name;
          return 1;
        }
        return 0;
      },
      &search);
  return search.path.empty() ? "/proc/self/exe" : search.path;
}

std::string processor() {
  std::string out;
  const auto add = [&](bool has, const char* name) {
    if (has) out += (out.empty() ? "" : " ") + std::string(name);
  };
#if defined(__x86_64__)
  add(__builtin_cpu_supports("sse4.2") != 0, "sse4.2");
  add(__builtin_cpu_supports("avx2") != 0, "avx2");
  add(__builtin_cpu_supports("fma") != 0, "fma");
  add(__builtin_cpu_supports("avx512f") != 0, "avx512f");
  add(__builtin_cpu_supports("avx512vnni") != 0, "avx512vnni");
#elif defined(__aarch64__)
  add(true, "aarch64");
#endif
  return out;
}

}  // namespace

cbor::Value environment() {
  static const std::string build = to_hex(sha256(read_file(own_file())));
  return cbor::map({{"version", version()},
                    {"build", build},
                    {"blas", fmt::format("{} on {}", ::openblas_get_config(), data::blas_core())},
                    {"cpu", processor()}});
}

std::string environment_difference(const cbor::Value& before, const cbor::Value& now) {
  std::string out;
  for (const std::string_view key : {"version", "build", "blas", "cpu"}) {
    const cbor::Value* was = before.find(key);
    if (was != nullptr && *was == now.at(key)) continue;
    if (!out.empty()) out += "; ";
    out += fmt::format("{} was {} and is {}", key, was == nullptr ? "unknown" : was->as_text(),
                       now.at(key).as_text());
  }
  return out;
}

}  // namespace discreet::run
