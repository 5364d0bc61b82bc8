#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two translation units that include everything link, and neither defines a strong symbol of vtier's (VO-I02). Only one
# of them makes a hierarchy, whose compilation takes longest: of a template there is never a strong symbol to clash.
# Once with nothing optional and, where flags are given, once more with them.
# link.sh ROOT COMPILER [FLAGS... [-- LIBRARIES...]]
set -eu
root=$1
compiler=$2
shift 2
flags=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do flags+=("$1"); shift; done
[ $# -gt 0 ] && shift  # what is left are libraries
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/use.hpp" <<'CPP'
#include <vtier/tier.hpp>
inline int use() {
  vtier::host::device on;
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 1U << 20U}}, vtier::pinned{{.budget = 1U << 20U}}};
  auto t = mem.make_tensor<float>({16}, vtier::role::parameter);
  auto stream = on.make_stream();
  return static_cast<int>(t.write(stream).size() + vtier::machine::discover().nodes().size());
}
CPP
printf '#include "use.hpp"\nint other() { return use(); }\n' >"$scratch/a.cpp"
cat >"$scratch/b.cpp" <<'CPP'
#include <vtier/tier.hpp>
int other();
int main() {
  vtier::host::device on;
  auto stream = on.make_stream();
  on.synchronize(stream);
  return 16 + static_cast<int>(vtier::machine::discover().nodes().size()) - other();
}
CPP
link() {  # LIBRARIES... -- FLAGS...
  local libraries=()
  while [ "$1" != -- ]; do libraries+=("$1"); shift; done
  shift
  for unit in a b; do
    "$compiler" -std=c++20 -O0 -fno-inline -I"$root/include" "$@" -c "$scratch/$unit.cpp" -o "$scratch/$unit.o"
  done
  "$compiler" "$scratch/a.o" "$scratch/b.o" ${libraries[@]+"${libraries[@]}"} -pthread -o "$scratch/both"
  "$scratch/both"
  nm -C "$scratch/a.o" "$scratch/b.o" >"$scratch/symbols"
  if grep -E ' [TDBR] .*vtier::' "$scratch/symbols"; then
    echo "strong symbols of vtier's, listed above"
    exit 1
  fi
  grep -qE ' [WVu] .*vtier::' "$scratch/symbols" || { echo "no symbol of vtier's at all: this test sees nothing"; exit 1; }
}
link --
[ ${#flags[@]} -eq 0 ] || link "$@" -- "${flags[@]}"
echo "two units link with $compiler, no strong symbols: alone, and with ${flags[*]:-nothing more}"
