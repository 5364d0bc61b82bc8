#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Under an older standard the first thing a user reads is what is needed, and it is the only error (VO-I08).
# standard.sh ROOT COMPILER
set -u
root=$1
compiler=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '#include <vtier/core/config.hpp>\nint main() {}\n' >"$scratch/old.cpp"
"$compiler" -std=c++17 -fsyntax-only -I"$root/include" "$scratch/old.cpp" >"$scratch/text" 2>&1 &&
  { echo "C++17 was accepted"; exit 1; }
errors=$(grep -c 'error:' "$scratch/text")
if [ "$errors" -ne 1 ] || ! grep -q 'vtier needs C++20' "$scratch/text"; then
  cat "$scratch/text"
  exit 1
fi
printf '#include <vtier/tier.hpp>\nint main() {}\n' >"$scratch/old.cpp"
"$compiler" -std=c++17 -fsyntax-only -I"$root/include" "$scratch/old.cpp" 2>&1 | grep 'error:' | head -n 1 | grep -q 'vtier needs C++20' ||
  { echo "tier.hpp says something else first"; exit 1; }
echo "C++17 gets one clear error with $compiler"
