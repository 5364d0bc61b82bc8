#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nvcc compiles everything in a .cu file, with the hierarchy instantiated on both devices (VO-I04, VO-I13).
# nvcc.sh ROOT NVCC [FLAGS...]
set -eu
root=$1
nvcc=$2
shift 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/all.cu" <<'CPP'
#include <vtier/tier.hpp>
template <class Device>
void use(Device on) {
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 1U << 20U}}, vtier::pinned{{.budget = 1U << 20U}},
                       vtier::mapped_file{"/nowhere", {.budget = 1U << 20U}}};
  auto t = mem.template make_tensor<float>({16}, vtier::role::parameter);
  auto stream = on.make_stream();
  auto lease = t.write(stream);
  vtier::activation_stack stack{mem};
  mem.prefetch(t);
}
__global__ void scale(float* p, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) p[i] *= 2.0F;
}
int main() {
  use(vtier::host::device{});
  use(vtier::cuda::device{0});
}
CPP
"$nvcc" -std=c++20 -Werror all-warnings -I"$root/include" "$@" -c "$scratch/all.cu" -o "$scratch/all.o"
echo "nvcc compiles tier.hpp"
