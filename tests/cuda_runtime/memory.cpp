// SPDX-License-Identifier: Apache-2.0
// The stand-in's memory and copies.

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include "runtime.hpp"

namespace standin {

gpu* device_at(runtime& r, const void* place) {
  for (const auto& g : r.gpus) {
    if (g->bytes.holds(place)) return g.get();
  }
  return nullptr;
}

bool is_locked(const runtime& r, const void* place, std::size_t size_bytes) {
  auto* const first = const_cast<std::byte*>(static_cast<const std::byte*>(place));
  for (const auto* ranges : {&r.pinned, &r.registered}) {
    auto at = ranges->upper_bound(first);
    if (at == ranges->begin()) continue;
    --at;
    if (first + size_bytes <= at->first + at->second) return true;
  }
  return false;
}

std::byte* reach(runtime& r, const void* place) {
  gpu* const g = device_at(r, place);
  return g == nullptr ? const_cast<std::byte*>(static_cast<const std::byte*>(place)) : g->bytes.reach(place);
}

namespace {

gpu& here(runtime& r) { return *r.gpus[static_cast<std::size_t>(mine().device)]; }

cudaError_t take(runtime& r, void** given, std::size_t size_bytes) {
  *given = nullptr;
  if (size_bytes == 0) return cudaSuccess;
  gpu& g = here(r);
  void* const block_start = size_bytes <= g.bytes.size_bytes() ? g.bytes.take(size_bytes) : nullptr;
  if (block_start == nullptr) return cudaErrorMemoryAllocation;
  r.world->allocated(block_start, size_bytes, "memory of gpu " + std::to_string(mine().device));
  r.world->forget(block_start, size_bytes);
  r.device_blocks[static_cast<std::byte*>(block_start)] = {size_bytes, mine().device};
  *given = block_start;
  return cudaSuccess;
}

void give(runtime& r, std::byte* start) {
  const auto at = r.device_blocks.find(start);
  const block b = at->second;
  r.device_blocks.erase(at);
  r.world->touch(start, b.size_bytes, sim::access_kind::write);
  r.world->freed(start, b.size_bytes);
  r.gpus[static_cast<std::size_t>(b.device)]->bytes.give(start, b.size_bytes);
}

cudaError_t copy(runtime& r, stream& s, void* target, const void* source, std::size_t size_bytes, cudaMemcpyKind kind) {
  if (size_bytes == 0) return cudaSuccess;
  const gpu* const to = device_at(r, target);
  const gpu* const from = device_at(r, source);
  if (kind == cudaMemcpyDefault) {
    kind = to != nullptr ? (from != nullptr ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                         : (from != nullptr ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  }
  const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (wants_from != (from != nullptr) || wants_to != (to != nullptr)) return cudaErrorInvalidValue;
  gpu& g = *r.gpus[static_cast<std::size_t>(s.device)];
  sim::work w;
  w.duration_ns = r.world->stretched(2000.0 + static_cast<double>(size_bytes) / 16.0);
  w.link = kind == cudaMemcpyHostToDevice ? g.up_link : kind == cudaMemcpyDeviceToHost ? g.down_link : 0;
  std::shared_ptr<std::vector<std::byte>> staged;
  if (kind == cudaMemcpyHostToDevice && !is_locked(r, source, size_bytes)) {  // pageable: read at the call
    r.world->reads(source, size_bytes);
    const auto* const first = static_cast<const std::byte*>(source);
    staged = std::make_shared<std::vector<std::byte>>(first, first + size_bytes);
  }
  w.run = [&r, target, source, size_bytes, staged] {
    if (staged == nullptr) r.world->reads(source, size_bytes);
    r.world->writes(target, size_bytes);
    std::memmove(reach(r, target), staged != nullptr ? staged->data() : reach(r, source), size_bytes);
  };
  static constexpr const char* words[] = {"copy within the host", "copy up", "copy down", "copy within the device"};
  const auto done = submit(r, s, std::move(w), words[static_cast<std::size_t>(kind)]);
  // Into pageable memory, and within the host, the call itself is the copy.
  const bool blocks =
      kind == cudaMemcpyHostToHost || (kind == cudaMemcpyDeviceToHost && !is_locked(r, target, size_bytes));
  if (blocks) await(r, done);
  return cudaSuccess;
}

cudaError_t set(runtime& r, stream& s, void* target, int value, std::size_t size_bytes) {
  if (size_bytes == 0) return cudaSuccess;
  if (device_at(r, target) == nullptr) return cudaErrorInvalidValue;
  sim::work w;
  w.duration_ns = r.world->stretched(2000.0);
  w.run = [&r, target, value, size_bytes] {
    r.world->writes(target, size_bytes);
    std::memset(reach(r, target), value, size_bytes);
  };
  submit(r, s, std::move(w), "fill");
  return cudaSuccess;
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
  r.pinned[static_cast<std::byte*>(start)] = size_bytes;
  *given = start;
  return cudaSuccess;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaMalloc(void** given, std::size_t size_bytes) {
  return call("cudaMalloc", [&](runtime& r) { return take(r, given, size_bytes); });
}

// As the real one, it waits for everything on the device.
cudaError_t cudaFree(void* start) {
  return call(
      "cudaFree",
      [&](runtime& r) {
        if (start == nullptr) return cudaSuccess;
        const auto at = r.device_blocks.find(static_cast<std::byte*>(start));
        if (at == r.device_blocks.end()) return cudaErrorInvalidValue;
        await_device(r, at->second.device);
        give(r, at->first);
        return cudaSuccess;
      },
      true);
}

cudaError_t cudaMallocAsync(void** given, std::size_t size_bytes, cudaStream_t handle) {
  return call("cudaMallocAsync", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    gpu& g = here(r);
    cudaError_t code = take(r, given, size_bytes);
    while (code == cudaErrorMemoryAllocation && !g.frees.empty()) {  // what is queued for release is used again
      const auto next = g.frees.front();
      g.frees.erase(g.frees.begin());
      await(r, next.first);
      sim::work w;
      w.after = next.first;
      submit(r, *s, std::move(w), "wait for a release");
      code = take(r, given, size_bytes);
    }
    return code;
  });
}

cudaError_t cudaFreeAsync(void* start, cudaStream_t handle) {
  return call("cudaFreeAsync", [&](runtime& r) {
    if (start == nullptr) return cudaSuccess;
    const auto s = stream_of(r, handle);
    auto* const first = static_cast<std::byte*>(start);
    const auto at = r.device_blocks.find(first);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (at == r.device_blocks.end()) return cudaErrorInvalidValue;
    gpu& g = *r.gpus[static_cast<std::size_t>(at->second.device)];
    sim::work w;
    w.run = [&r, first] { give(r, first); };
    const std::size_t size = at->second.size_bytes;
    g.frees.emplace_back(submit(r, *s, std::move(w), "free"), size);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** given, std::size_t size_bytes, unsigned) {
  return call("cudaHostAlloc", [&](runtime& r) { return host_alloc(r, given, size_bytes); });
}
cudaError_t cudaMallocHost(void** given, std::size_t size_bytes) {
  return call("cudaMallocHost", [&](runtime& r) { return host_alloc(r, given, size_bytes); });
}

cudaError_t cudaFreeHost(void* start) {
  return call(
      "cudaFreeHost",
      [&](runtime& r) {
        if (start == nullptr) return cudaSuccess;
        const auto at = r.pinned.find(static_cast<std::byte*>(start));
        if (at == r.pinned.end()) return cudaErrorInvalidValue;
        for (int device = 0; device < static_cast<int>(r.gpus.size()); ++device) await_device(r, device);
        r.world->touch(start, at->second, sim::access_kind::write);
        r.world->freed(start, at->second);
        r.pinned.erase(at);
        std::free(start);
        return cudaSuccess;
      },
      true);
}

cudaError_t cudaHostRegister(void* start, std::size_t size_bytes, unsigned) {
  return call("cudaHostRegister", [&](runtime& r) {
    if (start == nullptr || size_bytes == 0) return cudaErrorInvalidValue;
    auto* const first = static_cast<std::byte*>(start);
    if (is_locked(r, first, 1) || is_locked(r, first + size_bytes - 1, 1)) return cudaErrorHostMemoryAlreadyRegistered;
    r.registered[first] = size_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* start) {
  return call(
      "cudaHostUnregister",
      [&](runtime& r) {
        return r.registered.erase(static_cast<std::byte*>(start)) == 1 ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
      },
      true);
}

cudaError_t cudaHostGetDevicePointer(void** given, void* start, unsigned) {
  return call("cudaHostGetDevicePointer", [&](runtime& r) {
    if (!is_locked(r, start, 1)) return cudaErrorInvalidValue;
    *given = start;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return call("cudaMemcpyAsync", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    return s == nullptr ? cudaErrorInvalidResourceHandle : copy(r, *s, target, source, size_bytes, kind);
  });
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t size_bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&](runtime& r) {
    const auto s = stream_of(r, nullptr);
    const cudaError_t code = copy(r, *s, target, source, size_bytes, kind);
    await(r, s->last);
    return code;
  });
}

cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, std::size_t size_bytes,
                                cudaStream_t handle) {
  return call("cudaMemcpyPeerAsync", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    return s == nullptr ? cudaErrorInvalidResourceHandle
                        : copy(r, *s, target, source, size_bytes, cudaMemcpyDeviceToDevice);
  });
}

cudaError_t cudaMemcpyPeer(void* target, int, const void* source, int, std::size_t size_bytes) {
  return cudaMemcpy(target, source, size_bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t size_bytes, cudaStream_t handle) {
  return call("cudaMemsetAsync", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    return s == nullptr ? cudaErrorInvalidResourceHandle : set(r, *s, target, value, size_bytes);
  });
}

cudaError_t cudaMemset(void* target, int value, std::size_t size_bytes) {
  return call("cudaMemset", [&](runtime& r) {
    return set(r, *stream_of(r, nullptr), target, value, size_bytes);  // as the real one: not waited for
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
    about->hostPointer = const_cast<void*>(place);
    for (std::size_t i = 0; i < r.gpus.size(); ++i) {
      if (!r.gpus[i]->bytes.holds(place)) continue;
      about->type = cudaMemoryTypeDevice;
      about->device = static_cast<int>(i);
      about->devicePointer = const_cast<void*>(place);
      about->hostPointer = nullptr;
      return cudaSuccess;
    }
    about->type = is_locked(r, place, 1) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetDefaultMemPool", [&](runtime& r) {
    if (device < 0 || static_cast<std::size_t>(device) >= r.gpus.size()) return cudaErrorInvalidDevice;
    *pool = reinterpret_cast<cudaMemPool_t>(r.gpus[static_cast<std::size_t>(device)].get());
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return call("cudaMemPoolSetAttribute", [](runtime&) { return cudaSuccess; });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  return call("cudaMemPoolTrimTo", [](runtime&) { return cudaSuccess; });
}

}  // extern "C"
