// SPDX-License-Identifier: Apache-2.0
// The stand-in's launches: host functions, kernels bound to host functions, and what nvcc's host code calls.

#include <thread>

#include "runtime.hpp"

namespace standin {
namespace {

// Runs host functions, one after the other, and never ends.
void run_functions(runtime& r) {
  mine().in_function = true;
  std::unique_lock hold{r.lock};
  for (;;) {
    r.changed.wait(hold, [&] { return !r.functions.empty(); });
    auto [act, returned] = std::move(r.functions.front());
    r.functions.pop_front();
    ++r.functions_running;
    hold.unlock();
    act();
    act = nullptr;
    hold.lock();
    returned->passed = true;
    --r.functions_running;
    r.changed.notify_all();
  }
}

// A stream that has come to a host function goes on when that has returned.
void enqueue_for_thread(runtime& r, stream& s, std::function<void()> act) {
  if (!std::exchange(r.has_thread, true)) std::thread{[&r] { run_functions(r); }}.detach();
  const auto returned = r.world->make_mark(0);
  sim::work begin;
  begin.run = [&r, &g = at(r, s.device), act = std::move(act), returned]() mutable {
    if (g.broken != 0) {  // it is not called after an error
      returned->passed = true;
      return;
    }
    r.functions.emplace_back(std::move(act), returned);
    r.changed.notify_all();
  };
  submit(r, s, std::move(begin), "host function");
  returned->known = s.work->known;
  sim::work end;
  end.after = returned;
  submit(r, s, std::move(end), "end of a host function");
}

// Runs `act` in stream order; a kernel may touch the memory of its device and its peers, a host function may not.
void enqueue(runtime& r, stream& s, std::function<void()> act, bool is_kernel) {
  gpu& g = at(r, s.device);
  sim::work w;
  w.duration_ns = r.world->stretched(5000.0);
  if (is_kernel) {
    w.run = on_device(r, g, [&r, &g, act = std::move(act)] {
      const auto open = [&](bool yes) {
        g.bytes.open(yes);
        for (const int peer : g.peers) at(r, peer).bytes.open(yes);
      };
      open(true);
      act();
      open(false);
    });
  } else {
    w.run = [&g, act = std::move(act)]() mutable {
      if (g.broken != 0) return;
      act();
      act = nullptr;
    };
  }
  submit(r, s, std::move(w), is_kernel ? "kernel" : "host function");
}

const vtier::test::kernel_capture* find_kernel(const runtime& r, const void* stub) {
  if (const auto bound = r.kernels.find(stub); bound != r.kernels.end()) return &bound->second;
  const auto name = r.stub_names.find(stub);
  if (name == r.stub_names.end()) return nullptr;
  const auto bound = r.named_kernels.find(name->second);
  return bound == r.named_kernels.end() ? nullptr : &bound->second;
}

cudaError_t launch(runtime& r, const void* stub, dim3 grid, dim3 block, void** arguments, cudaStream_t handle) {
  const auto s = stream_of(r, handle);
  if (s == nullptr || s->device != mine().device) return cudaErrorInvalidResourceHandle;
  const auto* const capture = find_kernel(r, stub);
  if (capture == nullptr) {
    r.world->violation("a kernel was launched that is bound to no host function");
    return cudaErrorInvalidDeviceFunction;
  }
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  enqueue(r, *s, (*capture)(arguments, grid, block), true);
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
    std::function<void()> act = [function, data] { function(data); };
    if (r.functions_on_thread) {
      enqueue_for_thread(r, *s, std::move(act));
    } else {
      enqueue(r, *s, std::move(act), false);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t handle) {
  return call("cudaLaunchKernel", [&](runtime& r) { return launch(r, stub, grid, block, arguments, handle); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* stub, void** arguments) {
  return call("cudaLaunchKernelExC",
              [&](runtime& r) { return launch(r, stub, how->gridDim, how->blockDim, arguments, how->stream); });
}

// ---- what nvcc's host code calls

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const std::scoped_lock hold{the().lock};
  the().stub_names[stub] = name;
}
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
