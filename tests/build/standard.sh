#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Under an older standard the first thing a user reads is what is needed, and it is the only error (VO-I08).
# standard.sh ROOT COMPILER
set -u
root=$1
compiler=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for header in core/config.hpp tier.hpp; do
  printf '#include <vtier/%s>\nint main() {}\n' "$header" >"$scratch/old.cpp"
  "$compiler" -std=c++17 -fsyntax-only -I"$root/include" "$scratch/old.cpp" >"$scratch/text" 2>&1 &&
    { echo "$header: C++17 was accepted"; exit 1; }
  errors=$(grep -c 'error:' "$scratch/text")
  if [ "$errors" -ne 1 ] || ! grep -q 'vtier needs C++20' "$scratch/text"; then
    head -n 20 "$scratch/text"
    echo "$header: $errors errors"
    exit 1
  fi
done
echo "C++17 gets one clear error with $compiler"
