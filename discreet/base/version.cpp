#include "discreet/base/version.h"

namespace discreet {

std::string_view version() noexcept { return DISCREET_VERSION; }

}  // namespace discreet
