#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and trains a GPT in three tiers, compared with a run that has room for everything.
# run.sh [--no-install] [options of train_gpt, see --help]
set -eu
. "$(dirname "$0")/../cmake/setup.sh"
arguments=()
install=yes
for argument in "$@"; do
  if [ "$argument" = --no-install ]; then install=no; else arguments+=("$argument"); fi
done
[ "$install" = yes ] && vtier_install "${vtier_packages_build[@]}"
build=$vtier_root/build/release
vtier_configure "$build" -DCMAKE_BUILD_TYPE=Release -DVTIER_BUILD_TESTS=OFF -DVTIER_BUILD_BENCH=OFF
echo "building train_gpt (about half a minute)"
cmake --build "$build" --target train_gpt -j "$vtier_jobs" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
exec "$build/examples/train_gpt/train_gpt" --compare ${arguments[@]+"${arguments[@]}"}
