#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds one benchmark in release mode, and runs it.
# run.sh NAME [--no-install] [--json FILE] [options of the benchmark]
set -eu
. "$(dirname "$0")/../cmake/setup.sh"
if [ $# -lt 1 ]; then
  echo "bench/run.sh NAME [--json FILE]; there are:"
  for folder in "$vtier_root"/bench/*/; do
    name=$(basename "$folder")
    if [ -f "$folder/$name.cpp" ]; then echo "  $name"; fi
  done
  exit 2
fi
name=$1
shift
[ -f "$vtier_root/bench/$name/$name.cpp" ] || { echo "no benchmark of the name $name"; exit 2; }
arguments=()
install=yes
for argument in "$@"; do
  if [ "$argument" = --no-install ]; then install=no; else arguments+=("$argument"); fi
done
[ "$install" = yes ] && vtier_install "${vtier_packages_bench[@]}"
build=$vtier_root/build/bench
vtier_configure "$build" -DCMAKE_BUILD_TYPE=Release -DVTIER_BUILD_TESTS=OFF -DVTIER_BUILD_EXAMPLES=OFF
cmake --build "$build" --target "$name" -j "$vtier_jobs" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
exec "$build/bench/$name" ${arguments[@]+"${arguments[@]}"}
