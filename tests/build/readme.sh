#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README quotes the compiled example to the letter, and every script that it names is there.
# readme.sh ROOT
set -eu
root=$1
quoted=$(awk '/^```cpp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/README.md")
source=$(awk '/\/\/ \[readme\]/ { inside = !inside; next } inside' "$root/examples/first_tensor/first_tensor.cpp" | sed 's/^  //')
if [ "$quoted" != "$source" ]; then
  diff <(printf '%s\n' "$quoted") <(printf '%s\n' "$source") || true
  echo "README.md differs from examples/first_tensor/first_tensor.cpp"
  exit 1
fi
for script in $(grep -oE 'bash [a-z./_]+\.sh' "$root/README.md" | awk '{print $2}' | sort -u); do
  [ -f "$root/$script" ] || { echo "README.md names $script, which is not there"; exit 1; }
done
lines=$(wc -l <"$root/examples/first_tensor/first_tensor.cpp")
[ "$lines" -lt 60 ] || { echo "first_tensor.cpp has $lines lines, 60 are too many"; exit 1; }
echo "README.md quotes what is compiled"
