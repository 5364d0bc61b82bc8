// SPDX-License-Identifier: Apache-2.0
// The stand-in's devices.

#include <cstdio>
#include <cstring>

#include "runtime.hpp"

namespace standin {
namespace {

struct address {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  unsigned function = 0;
  friend bool operator==(const address&, const address&) = default;
};

// "dddd:bb:dd.f" in either case, or without the domain.
std::optional<address> parse(const std::string& text) {
  address a;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%x:%x:%x.%x%c", &a.domain, &a.bus, &a.slot, &a.function, &rest) == 4) return a;
  a = {};
  if (std::sscanf(text.c_str(), "%x:%x.%x%c", &a.bus, &a.slot, &a.function, &rest) == 3) return a;
  return std::nullopt;
}

int attribute(cudaDeviceAttr what) {
  switch (what) {
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported: return 1;
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMultiProcessorCount: return 4;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    default: return 0;  // managed memory, reading pageable memory, registering read-only memory among them
  }
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return call(
      "cudaGetDeviceCount",
      [&](runtime& r) {
        if (r.gpus.empty()) return cudaErrorNoDevice;  // *count stays as it is
        *count = static_cast<int>(r.gpus.size());
        return cudaSuccess;
      },
      needs::nothing);
}

cudaError_t cudaGetDevice(int* device) {
  return call(
      "cudaGetDevice",
      [&](runtime&) {
        *device = mine().device;
        return cudaSuccess;
      },
      needs::a_device);
}

cudaError_t cudaSetDevice(int device) {
  return call(
      "cudaSetDevice",
      [&](runtime& r) {
        if (!exists(r, device)) return cudaErrorInvalidDevice;
        mine().device = device;
        r.devices_of_threads[mine().number].insert(device);  // since CUDA 12 it makes a context
        return state_of(at(r, device));
      },
      needs::nothing);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call(
      "cudaGetDeviceProperties",
      [&](runtime& r) {
        if (!exists(r, device)) return cudaErrorInvalidDevice;
        *properties = {};
        const auto& about = at(r, device).about;
        std::strncpy(properties->name, about.name.c_str(), sizeof properties->name - 1);
        properties->totalGlobalMem = about.memory_bytes;
        properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
        properties->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
        properties->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
        properties->warpSize = attribute(cudaDevAttrWarpSize);
        properties->asyncEngineCount = attribute(cudaDevAttrAsyncEngineCount);
        properties->canMapHostMemory = properties->unifiedAddressing = properties->concurrentKernels = 1;
        const address where = parse(about.bus_id).value_or(address{});
        properties->pciDomainID = static_cast<int>(where.domain);
        properties->pciBusID = static_cast<int>(where.bus);
        properties->pciDeviceID = static_cast<int>(where.slot);
        return cudaSuccess;
      },
      needs::a_device);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  return call(
      "cudaDeviceGetAttribute",
      [&](runtime& r) {
        if (!exists(r, device)) return cudaErrorInvalidDevice;
        *value = attribute(what);
        return cudaSuccess;
      },
      needs::a_device);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return call(
      "cudaDeviceGetPCIBusId",
      [&](runtime& r) {
        if (!exists(r, device)) return cudaErrorInvalidDevice;
        const std::string& whole = at(r, device).about.bus_id;
        if (text == nullptr || size <= static_cast<int>(whole.size())) return cudaErrorInvalidValue;
        std::strcpy(text, whole.c_str());
        return cudaSuccess;
      },
      needs::a_device);
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call(
      "cudaDeviceGetByPCIBusId",
      [&](runtime& r) {
        const auto wanted = parse(text);
        if (!wanted) return cudaErrorInvalidValue;
        for (const auto& g : r.gpus) {
          if (parse(g->about.bus_id) != wanted) continue;
          *device = g->ordinal;
          return cudaSuccess;
        }
        return cudaErrorInvalidDevice;
      },
      needs::a_device);
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [](runtime& r) {
    await_device(r, mine().device);
    return state_of(here(r));
  });
}

// Takes all of the device but what came from its pool, or was mapped. An error of the device stays: the real one asks
// for the end of the process then.
cudaError_t cudaDeviceReset() {
  return call("cudaDeviceReset", [](runtime& r) {
    gpu& g = here(r);
    await_device(r, g.ordinal);
    for (auto* const s : std::set{r.streams.used()}) {
      if ((*s)->device != g.ordinal) continue;
      r.streams.give(s);
      r.world->stream_gone();
    }
    for (auto* const e : std::set{r.events.used()}) {
      if (e->device == g.ordinal) r.events.give(e);
    }
    for (const auto& [start, block] : std::map{r.device_blocks}) {
      if (block.device == g.ordinal && !block.pooled && !block.mapped) give(r, start);
    }
    g.streams.clear();
    g.legacy = nullptr;
    g.per_thread.clear();
    g.peers.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(
      "cudaDeviceCanAccessPeer",
      [&](runtime& r) {
        if (!exists(r, device) || !exists(r, peer)) return cudaErrorInvalidDevice;
        *can = device != peer ? 1 : 0;
        return cudaSuccess;
      },
      needs::a_device);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call("cudaDeviceEnablePeerAccess", [&](runtime& r) {
    if (!exists(r, peer) || peer == mine().device) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    return here(r).peers.insert(peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return call("cudaDeviceDisablePeerAccess", [&](runtime& r) {
    if (!exists(r, peer)) return cudaErrorInvalidDevice;
    return here(r).peers.erase(peer) == 1 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
