#!/bin/sh
# aarch64_test.sh SOURCE_DIR WORK_DIR NATIVE_PROGRAM
# Builds same_bits for AArch64, runs it under qemu-user and compares with the native program.
set -eu
source=$1 work=$2 native=$3
mkdir -p "$work/include"
# These headers serve every processor, but the directory they are in belongs to this one.
for library in hwy fmt; do ln -sfn "/usr/include/$library" "$work/include/$library"; done
room=$source/discreet/numerics
aarch64-linux-gnu-g++ -std=c++20 -O2 -ffp-contract=off -static -DHWY_COMPILE_ONLY_STATIC -DFMT_HEADER_ONLY \
  -I"$source" -isystem "$work/include" -o "$work/same_bits" \
  "$room/same_bits.cpp" "$room/elementary.cpp" "$room/elementary_span.cpp" "$room/sum.cpp" \
  "$room/fft.cpp" "$room/parallel.cpp" "$source/discreet/base/error.cpp"
qemu-aarch64-static "$work/same_bits" > "$work/aarch64.txt"
"$native" > "$work/native.txt"
diff "$work/native.txt" "$work/aarch64.txt"
cat "$work/aarch64.txt"
echo "the same bits"
