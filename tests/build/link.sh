#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two translation units that include everything link, and neither defines a strong symbol of vtier's (VO-I02).
# link.sh ROOT COMPILER
set -eu
root=$1
compiler=$2
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
printf '#include "use.hpp"\nint other();\nint main() { return use() - other(); }\n' >"$scratch/b.cpp"
for unit in a b; do
  "$compiler" -std=c++20 -O0 -fno-inline -I"$root/include" -c "$scratch/$unit.cpp" -o "$scratch/$unit.o" &
done
wait
"$compiler" "$scratch/a.o" "$scratch/b.o" -pthread -o "$scratch/both"
"$scratch/both"
if nm -C "$scratch/a.o" | grep -E ' [TDBR] .*vtier::'; then
  echo "strong symbols of vtier's, listed above"
  exit 1
fi
nm -C "$scratch/a.o" | grep -qE ' [WVu] .*vtier::' || { echo "no symbol of vtier's at all: this test sees nothing"; exit 1; }
echo "two units link with $compiler, no strong symbols"
