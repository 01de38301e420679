# What every file of ours is compiled with. Bits must not depend on the compiler's mood:
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

add_library(discreet_options INTERFACE)
target_compile_options(discreet_options INTERFACE
  -ffp-contract=off -fno-fast-math -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-psabi)
set(DISCREET_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize=")
if(DISCREET_SANITIZE)
  target_compile_options(discreet_options INTERFACE
    -fsanitize=${DISCREET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(discreet_options INTERFACE -fsanitize=${DISCREET_SANITIZE})
endif()
