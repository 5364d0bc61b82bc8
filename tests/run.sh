#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds the tests and runs them all: the concurrent rooms under the sanitizers first, then
# everything. run.sh [--no-install] [--quick]     (--quick: without the sanitizers)
# The sanitized builds are clang++'s where it and its run-time library are there: the tests run under both compilers
# then, and it takes two thirds of the time that g++ takes for the same checks.
set -eu
. "$(dirname "$0")/../cmake/setup.sh"
install=yes
quick=no
for argument in "$@"; do
  case $argument in
    --no-install) install=no ;;
    --quick) quick=yes ;;
    *) echo "run.sh [--no-install] [--quick]"; exit 2 ;;
  esac
done
[ "$install" = yes ] && vtier_install_tests

say() { printf '\n== %s (%s s so far)\n' "$*" "$SECONDS"; }

build_and_test() {  # DIRECTORY NAME [-D...]
  local build=$1 name=$2
  shift 2
  say "$name: configure and build"
  vtier_configure "$build" "$@"
  cmake --build "$build" -j "$vtier_jobs" >"$build.log" 2>&1 || { grep -E 'error|warning|FAILED' -A 5 "$build.log" || tail -50 "$build.log"; exit 1; }
  say "$name: run"
  (cd "$build" && ctest --output-on-failure -j "$vtier_jobs")
}

# The compiler for the sanitized builds, as an option of CMake: clang++ where it can link them, else CMake's own.
sanitizing_compiler() {
  local try
  try=$(mktemp -d)
  if command -v clang++ >/dev/null 2>&1 && echo 'int main() {}' >"$try/main.cpp" &&
     clang++ -fsanitize=address,undefined "$try/main.cpp" -o "$try/address" >/dev/null 2>&1 &&
     clang++ -fsanitize=thread "$try/main.cpp" -o "$try/thread" >/dev/null 2>&1; then
    echo "-DCMAKE_CXX_COMPILER=clang++"
  fi
  rm -r "$try"
}

root=$vtier_root/build
quick_flags=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1")
sanitized=(-DVTIER_BUILD_BENCH=OFF -DVTIER_BUILD_EXAMPLES=OFF -DVTIER_TEST_BUILDS=OFF)
concurrent="device;io;transfer;runtime;train;cases"
if [ "$quick" = no ]; then
  compiler=$(sanitizing_compiler)
  if [ -n "$compiler" ]; then sanitized+=("$compiler"); else say "no clang++ that links sanitizers: they are built with the default compiler, which takes longer"; fi
  build_and_test "$root/asan" "AddressSanitizer and UndefinedBehaviorSanitizer" "${quick_flags[@]}" "${sanitized[@]}" \
    -DVTIER_SANITIZE=address,undefined "-DVTIER_TEST_ROOMS=$concurrent;sim" -DVTIER_FUZZ_SEEDS=3000
  build_and_test "$root/tsan" "ThreadSanitizer" "${quick_flags[@]}" "${sanitized[@]}" -DVTIER_SANITIZE=thread "-DVTIER_TEST_ROOMS=$concurrent"
fi
# No sanitizer speaks here, so nobody reads line numbers.
build_and_test "$root/dev" "everything" -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1"
say "done"
