// SPDX-License-Identifier: Apache-2.0
// The stand-in's memory: of devices, and page-locked memory of the host.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime.hpp"

namespace standin {

gpu* device_at(runtime& r, const void* place) {
  for (const auto& g : r.gpus) {
    if (g->bytes.holds(place)) return g.get();
  }
  return nullptr;
}

std::byte* reach(runtime& r, const void* place) {
  gpu* const g = device_at(r, place);
  return g == nullptr ? const_cast<std::byte*>(static_cast<const std::byte*>(place)) : g->bytes.reach(place);
}

share locked_share(const runtime& r, const void* first, std::size_t size_bytes) {
  auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(first));
  std::byte* const to = from + size_bytes;
  auto at = r.locked.upper_bound(from);
  if (at != r.locked.begin()) {
    const auto before = std::prev(at);
    std::byte* const end = before->first + before->second.size_bytes;
    if (to <= end) return share::all;
    if (from < end) return share::part;
  }
  return at != r.locked.end() && at->first < to ? share::part : share::none;
}

// Takes device memory back, whoever uses it: that shows as a race.
void give(runtime& r, std::byte* start) {
  const auto found = r.device_blocks.find(start);
  const device_block b = found->second;
  r.device_blocks.erase(found);
  r.world->touch(start, b.size_bytes, sim::access_kind::write);
  r.world->freed(start, b.size_bytes);
  at(r, b.device).bytes.give(start, b.size_bytes);
}

namespace {

constexpr std::size_t spoiled_bytes_max = std::size_t{1} << 20U;

cudaError_t take(runtime& r, gpu& g, void** given, std::size_t size_bytes, bool pooled) {
  *given = nullptr;
  if (size_bytes == 0) return cudaSuccess;
  void* const start = size_bytes <= g.bytes.size_bytes() ? g.bytes.take(size_bytes) : nullptr;
  if (start == nullptr) return cudaErrorMemoryAllocation;
  std::memset(g.bytes.reach(start), 0xCD, (std::min)(size_bytes, spoiled_bytes_max));
  r.world->allocated(start, size_bytes, "memory of gpu " + std::to_string(g.ordinal));
  r.world->forget(start, size_bytes);
  r.device_blocks[static_cast<std::byte*>(start)] = {size_bytes, g.ordinal, pooled, false};
  *given = start;
  return cudaSuccess;
}

// Memory that is on its way back into the pool is given out again behind that: always where there is no other, and
// else as the seed says. The host does not learn that it was free.
cudaError_t take_in_stream(runtime& r, void** given, std::size_t size_bytes, cudaStream_t handle) {
  const auto s = stream_of(r, handle);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  gpu& g = at(r, s->device);
  cudaError_t code = cudaErrorMemoryAllocation;
  const bool waits = r.world->random().below(2) == 0;
  if (!waits || g.frees.empty()) code = take(r, g, given, size_bytes, true);
  while (code == cudaErrorMemoryAllocation && !g.frees.empty()) {
    const auto next = g.frees.front();
    g.frees.erase(g.frees.begin());
    if (!reached(r, next)) continue;
    sim::work w;
    w.after = next;
    submit(r, *s, std::move(w), "wait for a release");
    code = take(r, g, given, size_bytes, true);
  }
  return code;
}

cudaError_t host_alloc(runtime& r, void** given, std::size_t size_bytes) {
  *given = nullptr;
  if (size_bytes == 0) return cudaSuccess;
  if (size_bytes > (std::size_t{1} << 36U)) return cudaErrorMemoryAllocation;
  const std::size_t whole = (size_bytes + 4095) / 4096 * 4096;
  void* const start = std::aligned_alloc(4096, whole);
  if (start == nullptr) return cudaErrorMemoryAllocation;
  std::memset(start, 0xCD, whole);
  r.world->allocated(start, size_bytes, "page-locked host memory");
  r.world->forget(start, size_bytes);
  r.locked[static_cast<std::byte*>(start)] = {size_bytes, false};
  *given = start;
  return cudaSuccess;
}

// Whether the system lets this process write to all of a range.
bool is_writable(const void* first, std::size_t size_bytes) {
  auto from = reinterpret_cast<std::uintptr_t>(first);
  const std::uintptr_t to = from + size_bytes;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, static_cast<char*>(rights)) != 3) continue;
    if (from < begin || from >= end) continue;
    if (rights[1] != 'w') return false;
    from = end;
    if (from >= to) return true;
  }
  return false;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaMalloc(void** given, std::size_t size_bytes) {
  return call("cudaMalloc", [&](runtime& r) { return take(r, here(r), given, size_bytes, false); });
}

// As the real one, it waits for everything on the device.
cudaError_t cudaFree(void* start) {
  return call("cudaFree", [&](runtime& r) {
    if (start == nullptr) return cudaSuccess;
    const auto found = r.device_blocks.find(static_cast<std::byte*>(start));
    if (found == r.device_blocks.end() || found->second.mapped) return cudaErrorInvalidValue;
    await_device(r, found->second.device);
    if (at(r, found->second.device).broken != 0) return state_of(at(r, found->second.device));
    give(r, found->first);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** given, std::size_t size_bytes, cudaStream_t handle) {
  return call("cudaMallocAsync", [&](runtime& r) { return take_in_stream(r, given, size_bytes, handle); });
}

cudaError_t cudaFreeAsync(void* start, cudaStream_t handle) {
  return call("cudaFreeAsync", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (start == nullptr) return cudaSuccess;
    auto* const first = static_cast<std::byte*>(start);
    const auto found = r.device_blocks.find(first);
    if (found == r.device_blocks.end() || found->second.mapped) return cudaErrorInvalidValue;
    sim::work w;
    w.run = [&r, first] { give(r, first); };
    auto& frees = at(r, found->second.device).frees;
    std::erase_if(frees, [](const auto& done) { return done->passed; });
    frees.push_back(submit(r, *s, std::move(w), "free"));
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** given, std::size_t size_bytes, unsigned) {
  return call("cudaHostAlloc", [&](runtime& r) { return host_alloc(r, given, size_bytes); });
}
cudaError_t cudaMallocHost(void** given, std::size_t size_bytes) {
  return call("cudaMallocHost", [&](runtime& r) { return host_alloc(r, given, size_bytes); });
}

// As the real one, it waits for every device.
cudaError_t cudaFreeHost(void* start) {
  return call("cudaFreeHost", [&](runtime& r) {
    if (start == nullptr) return cudaSuccess;
    const auto found = r.locked.find(static_cast<std::byte*>(start));
    if (found == r.locked.end() || found->second.registered) return cudaErrorInvalidValue;
    for (const auto& g : r.gpus) await_device(r, g->ordinal);
    const std::size_t size = found->second.size_bytes;
    r.world->touch(start, size, sim::access_kind::write);
    r.world->freed(start, size);
    r.locked.erase(static_cast<std::byte*>(start));
    std::memset(start, 0xDB, (std::min)(size, spoiled_bytes_max));
    std::free(start);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* start, std::size_t size_bytes, unsigned flags) {
  return call("cudaHostRegister", [&](runtime& r) {
    if (start == nullptr || size_bytes == 0) return cudaErrorInvalidValue;
    if ((flags & cudaHostRegisterReadOnly) != 0) return cudaErrorNotSupported;  // the attribute says so
    if ((flags & ~unsigned{cudaHostRegisterPortable | cudaHostRegisterMapped}) != 0) return cudaErrorInvalidValue;
    if (locked_share(r, start, size_bytes) != share::none) return cudaErrorHostMemoryAlreadyRegistered;
    if (!is_writable(start, size_bytes)) return cudaErrorInvalidValue;
    r.locked[static_cast<std::byte*>(start)] = {size_bytes, true};
    return cudaSuccess;
  });
}

// It waits for nothing: a copy that is still to come shows when it runs.
cudaError_t cudaHostUnregister(void* start) {
  return call("cudaHostUnregister", [&](runtime& r) {
    const auto found = r.locked.find(static_cast<std::byte*>(start));
    if (found == r.locked.end() || !found->second.registered) return cudaErrorHostMemoryNotRegistered;
    r.locked.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetDevicePointer(void** given, void* start, unsigned) {
  return call("cudaHostGetDevicePointer", [&](runtime& r) {
    if (locked_share(r, start, 1) != share::all) return cudaErrorInvalidValue;
    *given = start;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return call("cudaMemGetInfo", [&](runtime& r) {
    *total_bytes = here(r).bytes.size_bytes();
    *free_bytes = *total_bytes - here(r).bytes.used_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* about, const void* place) {
  return call("cudaPointerGetAttributes", [&](runtime& r) {
    *about = {};
    about->type = cudaMemoryTypeUnregistered;
    about->device = -2;  // of no device
    if (const gpu* const g = device_at(r, place); g != nullptr) {
      about->type = cudaMemoryTypeDevice;
      about->device = g->ordinal;
      about->devicePointer = const_cast<void*>(place);
    } else if (locked_share(r, place, 1) == share::all) {
      about->type = cudaMemoryTypeHost;
      about->device = mine().device;
      about->devicePointer = about->hostPointer = const_cast<void*>(place);
    } else {
      about->hostPointer = const_cast<void*>(place);
    }
    return cudaSuccess;
  });
}

// ---- the pools: one for each device, whose handle is its gpu

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetDefaultMemPool", [&](runtime& r) {
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    *pool = reinterpret_cast<cudaMemPool_t>(&at(r, device));
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr what, void* value) {
  return call("cudaMemPoolSetAttribute", [&](runtime&) {
    if (what == cudaMemPoolAttrReleaseThreshold) {
      reinterpret_cast<gpu*>(pool)->release_threshold = *static_cast<std::uint64_t*>(value);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr what, void* value) {
  return call("cudaMemPoolGetAttribute", [&](runtime& r) {
    const gpu& g = *reinterpret_cast<gpu*>(pool);
    std::uint64_t used = 0;
    for (const auto& [start, block] : r.device_blocks) {
      if (block.pooled && block.device == g.ordinal) used += block.size_bytes;
    }
    switch (what) {
      case cudaMemPoolAttrReleaseThreshold: *static_cast<std::uint64_t*>(value) = g.release_threshold; break;
      case cudaMemPoolAttrUsedMemCurrent:
      case cudaMemPoolAttrReservedMemCurrent: *static_cast<std::uint64_t*>(value) = used; break;
      default: return cudaErrorNotSupported;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  return call("cudaMemPoolTrimTo", [](runtime&) { return cudaSuccess; });
}

}  // extern "C"
