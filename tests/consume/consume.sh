#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Uses vtier the ways that users do: installed and found, as a subdirectory, and by FetchContent from a folder (VO-I01);
# by -I alone does build/link.sh. Each project knows only CXX, and runs what it has built: with what is installed a
# program that uses all of the library, else one that compiles fast, for it is the same target.
# consume.sh ROOT COMPILER
set -eu
command -v make >/dev/null 2>&1 || export CMAKE_GENERATOR=Ninja  # CMake's own choice is make
root=$1
compiler=$2
here=$root/tests/consume
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
quiet() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; echo "FAILED: $*"; exit 1; }; }
build_and_run() {
  quiet cmake -S "$1" -B "$2" -DCMAKE_CXX_COMPILER="$compiler" "${@:3}"
  cp "$scratch/log" "$2.log"
  quiet cmake --build "$2"
  quiet "$2/user"
}

# The library is installed without any optional part found, as on a machine that has none ...
quiet cmake -S "$root" -B "$scratch/library" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_INSTALL_PREFIX="$scratch/prefix" \
  -DVTIER_BUILD_TESTS=OFF -DVTIER_BUILD_BENCH=OFF -DVTIER_BUILD_EXAMPLES=OFF \
  -DVTIER_WITH_HWLOC=OFF -DVTIER_WITH_NUMA=OFF -DVTIER_WITH_URING=OFF -DVTIER_WITH_CUDA=OFF
grep -q 'without hwloc (switched off' "$scratch/log" || { echo "missing parts are not listed"; exit 1; }
quiet cmake --build "$scratch/library"
quiet cmake --install "$scratch/library"
if grep -rlF "$root" "$scratch/prefix/lib" "$scratch/prefix/share" 2>/dev/null; then
  echo "the installed package knows where it was built"
  exit 1
fi

# ... and used on one that has what it has, and on one that has nothing.
build_and_run "$here/find_package" "$scratch/found" -DCMAKE_PREFIX_PATH="$scratch/prefix"
build_and_run "$here/find_package" "$scratch/found_bare" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DVTIER_WITH_HWLOC=OFF -DVTIER_WITH_NUMA=OFF -DVTIER_WITH_URING=OFF -DVTIER_WITH_CUDA=OFF
build_and_run "$here/add_subdirectory" "$scratch/sub" -DVTIER_SOURCE="$root"
build_and_run "$here/fetch_content" "$scratch/fetched" -DVTIER_SOURCE="$root"

# A component that is named must be there; the message says what is missing.
if cmake -S "$here/find_package" -B "$scratch/refused" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" -DUSER_COMPONENT=cuda -DVTIER_WITH_CUDA=OFF >"$scratch/log" 2>&1; then
  echo "a missing component was accepted"
  exit 1
fi
tr -s ' \n' ' ' <"$scratch/log" | grep -q 'without cuda' || { cat "$scratch/log"; exit 1; }

# A toolkit of which only half is there is no toolkit (VO-I11).
mkdir -p "$scratch/half/include" "$scratch/half/lib64"
printf '#define CUDART_VERSION 12080\n' >"$scratch/half/include/cuda_runtime_api.h"
touch "$scratch/half/lib64/libcudart.so.13"
ln -s libcudart.so.13 "$scratch/half/lib64/libcudart.so"
quiet cmake -S "$here/add_subdirectory" -B "$scratch/half_build" -DCMAKE_CXX_COMPILER="$compiler" -DVTIER_SOURCE="$root" \
  -DVTIER_CUDA_INCLUDE_DIR="$scratch/half/include" -DVTIER_CUDA_LIBRARY="$scratch/half/lib64/libcudart.so"
grep -q 'headers of CUDA 12, runtime library of CUDA 13' "$scratch/log" ||
  { cat "$scratch/log"; echo "half a CUDA installation was not noticed"; exit 1; }
echo "vtier is found, added and fetched"
