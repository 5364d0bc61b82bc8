#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer target of the interpreter of programs and lets it search for a moment.
# libfuzzer.sh ROOT CLANG [SECONDS [CORPUS]]
set -eu
root=$1
clang=$2
seconds=${3:-10}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
corpus=${4:-$scratch/corpus}
mkdir -p "$corpus"
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$scratch/try.cpp"
if ! "$clang" -fsanitize=fuzzer,address "$scratch/try.cpp" -o "$scratch/try" 2>"$scratch/log"; then
  echo "this clang has no libFuzzer (Debian: libclang-rt-*-dev); skipped"
  exit 77
fi
"$clang" -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I"$root/include" \
  -I"$root/tests" "$root/tests/sim/libfuzzer.cpp" -pthread -o "$scratch/fuzzer"
cd "$scratch"
"$scratch/fuzzer" -max_total_time="$seconds" -max_len=600 -print_final_stats=1 "$corpus" >"$scratch/log" 2>&1 || {
  cat "$scratch/log"
  for found in crash-* leak-* timeout-*; do [ -f "$found" ] && base64 "$found"; done
  exit 1
}
grep -E 'number_of_executed_units|new_units_added' "$scratch/log"
