// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a test says to the stand-in for the CUDA runtime, beside calling CUDA. Found at run time, so that the same
// program also runs on the real runtime, where there is none of this.
//
// Before the first call the environment decides: VTIER_STANDIN_GPUS ("name,bytes,PCI id;...", empty: no GPU),
// VTIER_STANDIN_SEED, and VTIER_STANDIN_FUNCTIONS ("inside" or "thread", see functions_on_thread).

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace vtier::test {

/// A GPU as the stand-in has it.
///
/// Units   bytes
struct standin_gpu {
  std::size_t memory_bytes = std::size_t{1} << 20U;
  std::string name = "stand-in";
  std::string bus_id = "0000:01:00.0";
  std::size_t granule_bytes = std::size_t{2} << 20U;  // of its virtual memory; 0: it has none
};

/// Turns the arguments of a launch into the work of the kernel, copied, because the caller's are gone when it runs.
using kernel_capture = std::function<std::function<void()>(void** arguments, dim3 grid, dim3 block)>;

/// The stand-in's own functions.
///
/// Threads any
struct standin_control {
  /// Begins anew: these GPUs, this seed. Everything that was made before must be gone.
  void (*reset)(std::uint64_t seed, const std::vector<standin_gpu>& gpus, bool logs);
  /// Has host functions run on a thread of the stand-in, so that one may block until the test lets it go on; else they
  /// run inside whichever call lets the time go on. What they read and write is not checked there.
  void (*functions_on_thread)(bool yes);

  /// The nth call of a function from now on, counted from 1, answers with a code; nth 0: each call until the code is
  /// 0; function "*": of any.
  void (*fail)(const char* function, std::uint64_t nth, int code);
  /// The nth copy, fill or kernel that runs on a device from now on, counted from 1, fails with a code that stays.
  void (*fail_work)(int device, std::uint64_t nth, int code);
  /// From now on everything on a device answers with a code, as after a kernel that failed.
  void (*break_device)(int device, int code);

  /// The driver does not have a function from now on.
  void (*lack)(const char* function);

  /// Binds the address of a kernel's host function to what runs in its place.
  void (*bind)(const void* stub, kernel_capture capture);
  /// The same by the name that nvcc's host code has registered it with.
  void (*bind_name)(const char* mangled, kernel_capture capture);

  /// What was done against the rules so far, leaks if `at_end`.
  std::vector<std::string> (*violations)(bool at_end);
  /// What has happened, where reset was told to write it down.
  std::vector<std::string> (*events)();
  /// How often a function was called while a device was the caller's current one; device -1: all.
  std::uint64_t (*calls)(const char* function, int device);
  /// All functions that were called since the beginning.
  std::vector<std::string> (*functions)();
  /// For each thread that has called, the devices that were its current one in a call.
  std::vector<std::set<int>> (*devices_of_threads)();
  /// Says that host code or a kernel uses bytes.
  void (*reads)(const void* first, std::size_t size_bytes);
  void (*writes)(const void* first, std::size_t size_bytes);
};

/// The stand-in, null where the real runtime answers.
inline const standin_control* standin() {
  using finder = const standin_control* (*)();
  static const auto find = reinterpret_cast<finder>(::dlsym(RTLD_DEFAULT, "vtier_standin"));
  return find == nullptr ? nullptr : find();
}

/// Binds a kernel to a function with the same arguments, behind grid and block.
template <class... A>
kernel_capture captured(void (*body)(dim3, dim3, A...)) {
  return [body](void** arguments, dim3 grid, dim3 block) {
    const auto copied = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple<A...>{*static_cast<A*>(arguments[I])...};
    }
    (std::index_sequence_for<A...>{});
    return std::function<void()>{[=] { std::apply([&](const A&... each) { body(grid, block, each...); }, copied); }};
  };
}
template <class... A>
void bind_kernel(void (*stub)(A...), void (*body)(dim3, dim3, A...)) {
  standin()->bind(reinterpret_cast<const void*>(stub), captured(body));
}

/// Launches as the code does that nvcc makes from <<<>>>.
template <class... A>
cudaError_t launch_kernel(void (*stub)(A...), dim3 grid, dim3 block, cudaStream_t stream, A... arguments) {
  std::array<void*, sizeof...(A)> places{static_cast<void*>(&arguments)...};
  return ::cudaLaunchKernel(reinterpret_cast<const void*>(stub), grid, block, places.data(), 0, stream);
}

}  // namespace vtier::test
