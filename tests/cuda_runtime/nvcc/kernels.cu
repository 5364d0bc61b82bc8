// SPDX-License-Identifier: Apache-2.0
// A kernel as users write it, launched by <<<>>>. Its body is a function of host and device, so that the stand-in runs
// the same lines.

#include "kernels.hpp"

__global__ void scale(float* values, float factor, int count) {
  scale_one(values, factor, count, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

void launch_scale(float* values, float factor, int count, cudaStream_t stream) {
  scale<<<(count + 127) / 128, 128, 0, stream>>>(values, factor, count);
}

kernel_stub scale_stub() { return &scale; }
