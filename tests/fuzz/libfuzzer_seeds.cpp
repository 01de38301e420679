// Puts fuzz::seeds() into the first corpus directory that libFuzzer was given, before it is read.
#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path folder = (*argv)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    int number = 0;
    for (const discreet::Bytes& seed : fuzz::seeds()) {
      std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
      file.write(reinterpret_cast<const char*>(seed.data()),
                 static_cast<std::streamsize>(seed.size()));
    }
    break;
  }
  return 0;
}
