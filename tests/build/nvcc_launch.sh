#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A kernel compiled by nvcc is launched by <<<>>> on the stand-in for the CUDA runtime.
# nvcc_launch.sh ROOT NVCC COMPILER STANDIN_DIRECTORY CUDA_INCLUDE_DIRECTORY
set -eu
root=$1 nvcc=$2 compiler=$3 standin=$4 cuda=$5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$nvcc" -std=c++20 -ccbin "$compiler" -cudart shared -c "$root/tests/cuda_runtime/nvcc/kernels.cu" -o "$scratch/kernels.o"
"$compiler" -std=c++20 -I"$root/include" -I"$root/tests" -isystem "$cuda" "$root/tests/cuda_runtime/nvcc/main.cpp" \
  "$scratch/kernels.o" -L"$standin" -lcudart -Wl,-rpath,"$standin" -ldl -o "$scratch/launch"
"$scratch/launch"
