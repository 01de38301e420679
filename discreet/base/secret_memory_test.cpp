#include "discreet/base/secret_memory.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace discreet {
namespace {

// Flags of the mapping that an address lies in, as the kernel has them ("dd": not in core dumps).
std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("VmFlags:") && inside) return line;
    std::size_t end = 0;
    if (line.find("kB") != std::string::npos || line.starts_with("VmFlags")) continue;
    try {
      const std::uintptr_t first = std::stoul(line, &end, 16);
      if (end < line.size() && line[end] == '-')
        inside = first <= wanted && wanted < std::stoul(line.substr(end + 1), nullptr, 16);
    } catch (const std::logic_error&) {
    }
  }
  return {};
}

TEST(SecretMemory, IsInNoCoreDump) {
  const SecretBytes secret(32, 7);
  EXPECT_NE(flags_of(secret.data()).find(" dd"), std::string::npos) << flags_of(secret.data());
  const std::vector<int> ordinary(32);
  EXPECT_EQ(flags_of(ordinary.data()).find(" dd"), std::string::npos);
}

TEST(SecretMemory, IsOverwrittenWhenItGrowsAndWhenItGoes) {
  const volatile std::uint8_t* first = nullptr;
  const volatile std::uint8_t* second = nullptr;
  const auto sevens = [](const volatile std::uint8_t* at, std::size_t n) {
    return std::count(at, at + n, 7);
  };
  {
    SecretBytes secret(64, 7);
    first = secret.data();
    secret.resize(4096, 7);
    second = secret.data();
    ASSERT_NE(first, second);
    EXPECT_EQ(sevens(first, 64), 0);
    EXPECT_EQ(sevens(second, 4096), 4096);
  }
  EXPECT_EQ(sevens(second, 4096), 0);
}

TEST(SecretMemory, ThrowsWhenItIsFull) {
  EXPECT_THROW(SecretBytes(std::size_t{1} << 30), std::bad_alloc);
  EXPECT_EQ(SecretBytes(1000, 1).size(), 1000u);
}

}  // namespace
}  // namespace discreet
