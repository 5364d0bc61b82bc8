// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#if defined(__CUDACC__)
#define SCALE_FUNCTION __host__ __device__
#else
#define SCALE_FUNCTION
#endif

SCALE_FUNCTION inline void scale_one(float* values, float factor, int count, int i) {
  if (i < count) values[i] *= factor;
}

using kernel_stub = void (*)(float*, float, int);
kernel_stub scale_stub();
void launch_scale(float* values, float factor, int count, cudaStream_t stream);
