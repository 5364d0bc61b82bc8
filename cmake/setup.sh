# SPDX-License-Identifier: Apache-2.0
# Sourced by the run.sh scripts: installs what is missing, and configures. Debian 12 and 13, Ubuntu 24.04.

vtier_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
vtier_jobs=$(nproc 2>/dev/null || echo 2)

# Installs those of the named packages that are not there; a package that cannot be had is named and does without.
vtier_install() {
  command -v dpkg-query >/dev/null 2>&1 || { echo "no dpkg here: install by hand, as far as you need them: $*"; return 0; }
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "not root and no sudo: going on without ${missing[*]}"; return 0; }
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq || echo "apt-get update failed: trying with the lists that are there"
  if ! "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    for package in "${missing[@]}"; do  # one by one: one that does not exist here must not keep the others away
      "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$package" >/dev/null || echo "not available here: $package"
    done
  fi
}

vtier_packages_build=(g++ cmake ninja-build libhwloc-dev libnuma-dev liburing-dev libopenblas-dev)
# The allocators that bench/memory looks for when it runs: only their shared libraries are used.
vtier_packages_peers=(libmimalloc-dev libjemalloc2 libgoogle-perftools-dev)
vtier_packages_bench=("${vtier_packages_build[@]}" libbenchmark-dev "${vtier_packages_peers[@]}")
vtier_packages_tests=("${vtier_packages_bench[@]}" catch2 clang binutils util-linux)

# What the tests need, and the run-time library of the clang that came with it: libFuzzer is in there.
vtier_install_tests() {
  vtier_install "${vtier_packages_tests[@]}"
  command -v clang >/dev/null 2>&1 && vtier_install "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
  return 0
}

# Configures a build directory: vtier_configure DIRECTORY [-D...]
vtier_configure() {
  local directory=$1
  shift
  mkdir -p "$(dirname "$directory")"
  local generator=()
  [ -f "$directory/CMakeCache.txt" ] || { command -v ninja >/dev/null 2>&1 && generator=(-G Ninja); }
  cmake -S "$vtier_root" -B "$directory" "${generator[@]}" "$@" >"$directory.log" 2>&1 ||
    { cat "$directory.log"; echo "configuring $directory failed"; return 1; }
  grep 'vtier' "$directory.log" || true
}
