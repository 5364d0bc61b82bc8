// SPDX-License-Identifier: Apache-2.0
// The stand-in's devices and errors, its state, and what tests say to it.

#include <cstdlib>
#include <cstring>

#include "runtime.hpp"

namespace standin {

runtime& the() {
  static auto* const one = new runtime;  // never destroyed: programs call CUDA until their very end
  return *one;
}

per_thread& mine() {
  static thread_local per_thread one;
  return one;
}

void runtime::reset(std::uint64_t seed, const std::vector<vtier::test::standin_gpu>& wanted, bool logs) {
  gpus.clear();
  streams = {};
  events = {};
  device_blocks.clear();
  pinned.clear();
  registered.clear();
  calls.clear();
  planned.clear();
  world = std::make_shared<sim::world>(sim::world_options{.seed = seed, .logs = logs});
  for (const auto& g : wanted) {
    gpus.push_back(std::make_unique<gpu>(g));
    gpus.back()->up_link = world->number();
    gpus.back()->down_link = world->number();
  }
  mine() = {};
}

namespace {

bool exists(const runtime& r, int device) { return device >= 0 && static_cast<std::size_t>(device) < r.gpus.size(); }

struct named_error {
  cudaError_t code;
  const char* name;
  const char* text;
};
constexpr named_error errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is older than the runtime"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered", "already registered"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "not registered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

vtier::test::standin_control control() {
  vtier::test::standin_control c{};
  c.reset = [](std::uint64_t seed, const std::vector<vtier::test::standin_gpu>& gpus, bool logs) {
    const std::scoped_lock hold{the().lock};
    the().reset(seed, gpus, logs);
  };
  c.fail = [](const char* function, std::uint64_t nth, int code) {
    const std::scoped_lock hold{the().lock};
    the().planned[function] = {nth, code};
  };
  c.break_device = [](int device, int code) {
    const std::scoped_lock hold{the().lock};
    the().gpus.at(static_cast<std::size_t>(device))->broken = code;
  };
  c.bind = [](const void* stub, vtier::test::kernel_capture capture) {
    const std::scoped_lock hold{the().lock};
    the().kernels[stub] = std::move(capture);
  };
  c.violations = [](bool at_end) {
    runtime& r = the();
    const std::scoped_lock hold{r.lock};
    if (at_end) {
      for (const auto& g : r.gpus) g->frees.clear();
      for (const auto& g : r.gpus) g->legacy = nullptr;
      if (!r.events.used().empty()) {
        r.world->violation("leaked: " + std::to_string(r.events.used().size()) + " events");
      }
      if (!r.registered.empty()) r.world->violation("leaked: a registration of host memory");
      r.world->finish();
    }
    return r.world->violations();
  };
  c.events = [] {
    const std::scoped_lock hold{the().lock};
    return the().world->events();
  };
  c.calls = [](const char* function, int device) {
    runtime& r = the();
    const std::scoped_lock hold{r.lock};
    std::uint64_t sum = 0;
    for (const auto& [on, count] : r.calls[function]) sum += device < 0 || on == device ? count : 0;
    return sum;
  };
  c.functions = [] {
    const std::scoped_lock hold{the().lock};
    std::vector<std::string> names;
    for (const auto& entry : the().calls) names.push_back(entry.first);
    return names;
  };
  c.reads = [](const void* first, std::size_t size) {
    const std::scoped_lock hold{the().lock};
    the().world->reads(first, size);
  };
  c.writes = [](const void* first, std::size_t size) {
    const std::scoped_lock hold{the().lock};
    the().world->writes(first, size);
  };
  return c;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

__attribute__((visibility("default"))) const vtier::test::standin_control* vtier_standin() {
  static const vtier::test::standin_control one = control();
  return &one;
}

// No frame: it answers also where there is no device.
cudaError_t cudaGetDeviceCount(int* count) {
  runtime& r = the();
  const std::scoped_lock hold{r.lock};
  if (r.gpus.empty()) return answer(cudaErrorNoDevice);
  *count = static_cast<int>(r.gpus.size());
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = mine().device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  runtime& r = the();
  const std::scoped_lock hold{r.lock};
  if (!exists(r, device)) return answer(cudaErrorInvalidDevice);
  mine().device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&](runtime& r) {
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    *properties = {};
    const auto& about = r.gpus[static_cast<std::size_t>(device)]->about;
    std::strncpy(properties->name, about.name.c_str(), sizeof properties->name - 1);
    properties->totalGlobalMem = about.memory_bytes;
    properties->major = 9;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  return call("cudaDeviceGetAttribute", [&](runtime& r) {
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    *value = what == cudaDevAttrMemoryPoolsSupported ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return call("cudaDeviceGetPCIBusId", [&](runtime& r) {
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    std::strncpy(text, r.gpus[static_cast<std::size_t>(device)]->about.bus_id.c_str(), static_cast<std::size_t>(size));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call("cudaDeviceGetByPCIBusId", [&](runtime& r) {
    for (std::size_t i = 0; i < r.gpus.size(); ++i) {
      if (r.gpus[i]->about.bus_id != text) continue;
      *device = static_cast<int>(i);
      return cudaSuccess;
    }
    return cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [](runtime& r) {
    await_device(r, mine().device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// An error of the device itself stays.
cudaError_t cudaGetLastError() {
  const cudaError_t last = mine().last;
  mine().last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() { return mine().last; }

const char* cudaGetErrorName(cudaError_t code) {
  for (const auto& e : errors) {
    if (e.code == code) return e.name;
  }
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t code) {
  for (const auto& e : errors) {
    if (e.code == code) return e.text;
  }
  return "unknown error";
}

}  // extern "C"
