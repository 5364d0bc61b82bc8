#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proof that the tests can fail: each patch in tests/mutants/ removes one guard of the library in a scratch copy, and the
# suite that its first line names must notice. mutants.sh [NAME...]     (names of patches; none: all)
#
# The first line of a patch: "caught by: TARGET [ARGUMENT...]", a program of the tests and what it is run with, quoted as
# in a shell. A patch whose program is not built on this machine (no CUDA toolkit) is skipped and not counted.
set -eu
. "$(dirname "$0")/../cmake/setup.sh"
vtier_install_tests
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
workers=$(nproc)
[ "$workers" -gt 4 ] && workers=4

patches=()
for patch in "$vtier_root"/tests/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  if [ $# -eq 0 ] || [[ " $* " == *" $name "* ]]; then patches+=("$patch"); fi
done
[ ${#patches[@]} -gt 0 ] || { echo "no such patch in tests/mutants/"; exit 2; }

# One copy of the tree and one build directory for each worker; a patch is taken back before the next comes.
prepare() {
  local copy=$scratch/$1
  mkdir -p "$copy"
  tar -C "$vtier_root" --exclude=./build --exclude=./.git -cf - . | tar -C "$copy" -xf -
  (vtier_root=$copy && vtier_configure "$copy/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1" -DVTIER_BUILD_BENCH=OFF -DVTIER_BUILD_EXAMPLES=ON -DVTIER_TEST_BUILDS=OFF) \
    >"$scratch/$1.configure" 2>&1 || { cat "$scratch/$1.configure"; exit 1; }
}

# Sets `run` to the suite that a patch names.
read_suite() {
  eval "run=($(sed -n '1s/^caught by: //p' "$1"))"
}

# Prints one line: caught, missed or broken.
try() {
  local copy=$scratch/$1 patch=$2 name log=$scratch/$1.log
  name=$(basename "$patch" .patch)
  read_suite "$patch"
  if [ ${#run[@]} -eq 0 ]; then echo "broken $name: its first line names no suite"; return; fi
  if ! patch -d "$copy" -p1 -s --no-backup-if-mismatch <"$patch" >"$log" 2>&1; then
    echo "broken $name: the patch does not fit any more"
    patch -d "$copy" -p1 -s -R -f --no-backup-if-mismatch <"$patch" >/dev/null 2>&1 || true
    return
  fi
  if ! cmake --build "$copy/build" --target "${run[0]}" -j 1 >"$log" 2>&1; then
    echo "broken $name: it does not compile: $(grep -m1 error "$log")"
  elif { (cd "$scratch" && timeout 300 "$copy/build/tests/${run[0]}" "${run[@]:1}") >"$log" 2>&1; } 2>/dev/null; then
    echo "missed $name: ${run[*]} passes"
  else
    echo "caught $name: ${run[*]}"
  fi
  patch -d "$copy" -p1 -s -R --no-backup-if-mismatch <"$patch"
}

work() {  # WORKER
  local i
  prepare "$1"
  for ((i = $1; i < ${#patches[@]}; i += workers)); do try "$1" "${patches[$i]}"; done
}

# What no patch has touched must pass, or nothing is proved.
sound() {
  local patch seen=$'\n'
  for patch in "${patches[@]}"; do
    read_suite "$patch"
    [[ $seen == *$'\n'"${run[*]}"$'\n'* ]] && continue
    seen+="${run[*]}"$'\n'
    cmake --build "$scratch/0/build" --target "${run[0]}" -j "$workers" >"$scratch/sound" 2>&1 || { cat "$scratch/sound"; return 1; }
    (cd "$scratch" && "$scratch/0/build/tests/${run[0]}" "${run[@]:1}") >"$scratch/sound" 2>&1 || { tail -30 "$scratch/sound"; echo "${run[*]} fails without a mutant"; return 1; }
  done
}

# Keeps the patches whose programs exist here.
keep_built() {
  local patch kept=() targets
  targets=$(cmake --build "$scratch/0/build" --target help)
  for patch in "${patches[@]}"; do
    read_suite "$patch"
    if [ ${#run[@]} -gt 0 ] && ! grep -qE "(^|[ /])${run[0]}(:| |$)" <<<"$targets"; then
      echo "skipped $(basename "$patch" .patch): no ${run[0]} on this machine"
    else
      kept+=("$patch")
    fi
  done
  patches=("${kept[@]}")
}

prepare 0
keep_built
sound || exit 1
for ((w = 0; w < workers; ++w)); do work "$w" >"$scratch/out.$w" & done
while [ -n "$(jobs -r)" ]; do  # shows lines as they come
  cat "$scratch"/out.* 2>/dev/null | sort -k2 | comm -13 "$scratch/shown" - 2>/dev/null || true
  cat "$scratch"/out.* 2>/dev/null | sort -k2 >"$scratch/shown"
  sleep 2
done
cat "$scratch"/out.* | sort -k2 | comm -13 "$scratch/shown" - 2>/dev/null || true
caught=$(cat "$scratch"/out.* | grep -c '^caught ' || true)
echo "mutants: $caught of ${#patches[@]} caught ($SECONDS s)"
[ "$caught" -eq ${#patches[@]} ]
