#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every public header alone, with strict warnings as errors, by -I and not as a system header, and with the
# macros defined that C headers of some projects leave behind (VO-I02, VO-I05, VO-I06).
# headers.sh ROOT COMPILER [--together | --conditional] [FLAGS...]
#   --together     all in one unit and none alone, for the warnings
#   --conditional  all in one unit, and alone those that depend on FLAGS: the others say the same with them as without
set -u
root=$1
compiler=$2
shift 2
alone=all
case ${1:-} in
  --together) alone=none; shift ;;
  --conditional) alone=conditional; shift ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wundef -Wnon-virtual-dtor"
case $("$compiler" --version 2>/dev/null | head -n 1) in
  *clang*) ;;
  *) warnings="$warnings -Wuseless-cast --param=ggc-min-heapsize=1048576" ;;
esac

# The standard headers first: they are not ours to defend against these.
cat >"$scratch/macros.hpp" <<'CPP'
#include <bits/stdc++.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define small char
#define near
#define far
#define interface struct
#define ERROR 0
#define OUT
#define IN
CPP

compile() {  # UNIT WHAT
  # shellcheck disable=SC2086
  "$compiler" -std=c++20 -fsyntax-only $warnings -Werror -I"$root/include" "${flags[@]}" "$1" ||
    { echo "FAILED $2"; return 1; }
}

check() {
  local header=$1
  local name=${header//\//_}
  printf '#include <vtier/%s>\n' "$header" >"$scratch/$name.cpp"
  compile "$scratch/$name.cpp" "alone: $header"
}

flags=("$@")
failed=0
running=0
jobs_max=$(nproc 2>/dev/null || echo 2)
count=0
alone_count=0
while read -r header; do
  depends=yes
  case $header in
    memory/cuda_mr.hpp) [[ " $* " == *" -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE "* ]] || continue ;;
    device/cuda.hpp | device/detail/cuda_calls.hpp | device/detail/cuda_range.hpp) [[ " $* " == *" -DVTIER_HAS_CUDA=1 "* ]] || continue ;;
    topology/hwloc.hpp) [[ " $* " == *" -DVTIER_HAS_HWLOC=1 "* ]] || continue ;;
    observe/nvtx.hpp)
      echo '#include <nvtx3/nvToolsExt.h>' | "$compiler" -x c++ -fsyntax-only "${flags[@]}" - 2>/dev/null || continue ;;
    io/uring.hpp) [[ " $* " == *" -DVTIER_HAS_URING=1 "* ]] || continue ;;
    *) grep -q VTIER_HAS_ "$root/include/vtier/$header" || depends=no ;;
  esac
  count=$((count + 1))
  printf '#include <vtier/%s>\n' "$header" >>"$scratch/together.cpp"
  [ "$alone" = none ] && continue
  [ "$alone" = conditional ] && [ "$depends" = no ] && continue
  alone_count=$((alone_count + 1))
  check "$header" &
  running=$((running + 1))
  if [ "$running" -ge "$jobs_max" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
done < <(cd "$root/include/vtier" && find . -name '*.hpp' | sed 's|^\./||' | sort)
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
[ "$alone" = all ] || compile "$scratch/together.cpp" together || failed=1
[ "$count" -gt 40 ] || { echo "only $count headers were found"; exit 1; }

printf '#include "macros.hpp"\n#include <vtier/tier.hpp>\n' >"$scratch/all.cpp"
"$compiler" -std=c++20 -fsyntax-only -I"$root/include" -I"$scratch" "$@" "$scratch/all.cpp" ||
  { echo "FAILED: tier.hpp behind macros"; failed=1; }
[ "$alone" = none ] || [ "$alone_count" -gt 4 ] || { echo "only $alone_count headers were compiled alone"; exit 1; }
[ "$failed" -eq 0 ] && echo "$count headers compile, $alone_count of them alone, with $compiler $*"
exit "$failed"
