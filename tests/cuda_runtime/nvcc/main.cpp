// SPDX-License-Identifier: Apache-2.0
// Launches what nvcc has compiled, on the stand-in or on a GPU.

#include <cstdio>
#include <vector>

#include "cuda_runtime/control.hpp"
#include "kernels.hpp"

namespace {

void scale_body(dim3 grid, dim3 block, float* values, float factor, int count) {
  vtier::test::standin()->writes(values, static_cast<std::size_t>(count) * sizeof(float));
  for (unsigned i = 0; i < grid.x * block.x; ++i) scale_one(values, factor, count, static_cast<int>(i));
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) {
    std::puts("no stand-in and no GPU");
    return 77;
  }
  if (vtier::test::standin() != nullptr) vtier::test::bind_kernel(scale_stub(), &scale_body);
  constexpr int count = 1000;
  cudaStream_t stream = nullptr;
  float* values = nullptr;
  std::vector<float> host(count, 1.5F);
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return 1;
  if (cudaMalloc(reinterpret_cast<void**>(&values), count * sizeof(float)) != cudaSuccess) return 2;
  if (cudaMemcpyAsync(values, host.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream) != cudaSuccess)
    return 3;
  for (int i = 0; i < 3; ++i) launch_scale(values, 2.0F, count, stream);
  if (cudaGetLastError() != cudaSuccess) return 4;
  if (cudaMemcpyAsync(host.data(), values, count * sizeof(float), cudaMemcpyDeviceToHost, stream) != cudaSuccess)
    return 5;
  if (cudaStreamSynchronize(stream) != cudaSuccess) return 6;
  for (const float v : host) {
    if (v != 12.0F) return 7;
  }
  if (vtier::test::standin() != nullptr && !vtier::test::standin()->violations(false).empty()) return 8;
  std::puts(vtier::test::standin() != nullptr ? "kernels ran on the stand-in" : "kernels ran on the GPU");
  return 0;
}
