# What every file of ours is compiled with. Results must not depend on the compiler's choices:
# no fast-math, no contraction into fused multiply-adds, C++20 without extensions.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}" MATCHES "-ffast-math|-Ofast|-funsafe-math-optimizations")
  message(FATAL_ERROR "discreet cannot be built with fast-math: it would change certified results. Remove it from the compiler flags.")
endif()

set(DISCREET_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize=")

# What makes a defect end the program instead of giving it to an attacker: canaries, bounds of libc's
# and libstdc++'s functions, tables that are read-only once the program runs, addresses nobody
# knows beforehand, and, on processors that have them, marks where calls may land.
include(CheckPIESupported)
check_pie_supported()
set(DISCREET_HARDENING -fstack-protector-strong -D_GLIBCXX_ASSERTIONS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
  list(APPEND DISCREET_HARDENING -fcf-protection)
endif()
# The sanitizers have checks of their own there; without optimisation libc has none.
if(NOT DISCREET_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  list(APPEND DISCREET_HARDENING -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()

add_library(discreet_options INTERFACE)
target_compile_options(discreet_options INTERFACE
  ${DISCREET_HARDENING} -ffp-contract=off -fno-fast-math -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-psabi)
target_link_options(discreet_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
if(DISCREET_SANITIZE)
  target_compile_options(discreet_options INTERFACE
    -fsanitize=${DISCREET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(discreet_options INTERFACE -fsanitize=${DISCREET_SANITIZE})
endif()
