#include <discreet/discreet.h>

#include <cstdio>
#include <string>

int main() {
  const std::string version(discreet::version());
  const std::string digest = discreet::to_hex(discreet::sha256(discreet::bytes_of("abc")));
  std::printf("%s %s\n", version.c_str(), digest.c_str());
}
