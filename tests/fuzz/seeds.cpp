#include "tests/fuzz/fuzz.h"

__attribute__((weak)) std::vector<discreet::Bytes> fuzz::seeds() { return {}; }
