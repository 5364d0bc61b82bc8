// SPDX-License-Identifier: Apache-2.0
// The stand-in's launches: host functions, kernels bound to host functions, and what nvcc's host code calls.

#include "runtime.hpp"

namespace standin {
namespace {

// Runs `act` in stream order; a kernel may touch the memory of its device, a host function may not.
void enqueue(runtime& r, stream& s, std::function<void()> act, bool is_kernel) {
  sim::work w;
  w.duration_ns = r.world->stretched(5000.0);
  gpu* const g = r.gpus[static_cast<std::size_t>(s.device)].get();
  w.run = [g, act = std::move(act), is_kernel]() mutable {
    if (g->broken != 0) return;  // nothing runs any more on a device that has failed
    if (is_kernel) g->bytes.open(true);
    act();
    if (is_kernel) g->bytes.open(false);
    act = nullptr;
  };
  submit(r, s, std::move(w), is_kernel ? "kernel" : "host function");
}

cudaError_t launch(runtime& r, const void* stub, dim3 grid, dim3 block, void** arguments, cudaStream_t handle) {
  const auto at = r.kernels.find(stub);
  const auto s = stream_of(r, handle);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (at == r.kernels.end()) {
    r.world->violation("a kernel was launched that is bound to no host function");
    return cudaErrorInvalidDeviceFunction;
  }
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  enqueue(r, *s, at->second(arguments, grid, block), true);
  return cudaSuccess;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    enqueue(
        r, *s, [function, data] { function(data); }, false);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t handle) {
  return call("cudaLaunchKernel", [&](runtime& r) { return launch(r, stub, grid, block, arguments, handle); });
}

// ---- what nvcc's host code calls

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t handle) {
  mine().configurations.emplace_back(grid, block, shared_bytes, handle);
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* handle) {
  if (mine().configurations.empty()) return answer(cudaErrorInvalidConfiguration);
  cudaStream_t where = nullptr;
  std::tie(*grid, *block, *shared_bytes, where) = mine().configurations.back();
  mine().configurations.pop_back();
  *static_cast<cudaStream_t*>(handle) = where;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t,
                               cudaStream_t handle) {
  return call("cudaLaunchKernel", [&](runtime& r) {
    return launch(r, reinterpret_cast<const void*>(kernel), grid, block, arguments, handle);
  });
}

}  // extern "C"
